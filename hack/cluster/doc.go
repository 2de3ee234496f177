// Command loadline-cluster is a complete Kubernetes control plane in one
// program, for the demo and the end-to-end tests. It holds etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy,
// metrics-server, kwok, kubectl and our own player, and the code that starts and
// stops them.
//
// The first argument chooses what the program becomes. components.go lists
// the servers. The commands up, down, run, status, load and fetch are in package local, on
// top of instance, supervise and pki; the player, which gives simulated pods
// their usage, is in package play, on top of trace.
//
// Only this package imports the big servers, so the others build and test in
// seconds. There is no container engine, no image and no real kubelet here:
// pods never run anything, they only report that they do.
package main
