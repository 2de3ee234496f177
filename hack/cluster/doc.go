// Command loadline-cluster is a complete Kubernetes control plane in one program, for the demo and
// the end-to-end tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy,
// metrics-server, kwok, kubectl, a player that simulates the usage of pods, and the code that
// starts and stops them.
//
// The first argument selects a server or a command. Package local implements the commands.
//
// Only this package imports the large servers, so the others build and test in seconds. By default
// there is no container engine, image or kubelet: simulated pods run nothing and only report that
// they run.
package main
