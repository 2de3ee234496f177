// Package node tests the promises about running pods on a real node: a kubelet, containerd, runc
// and the cgroups of the kernel, with real usage of containers (see hack/cluster, up --real-node).
//
// It runs as root, if the variable LOADLINE_CLUSTER names the program of the control plane, as with
// `make e2e-node`. If the node cannot be started, the tests are skipped with the reason, or fail
// with LOADLINE_NODE=required. A broken promise always fails. At the end it prints the durations
// for lab/docs/real-node.md.
//
// A real Prometheus scrapes the kubelet. Tests that need it are skipped with the reason if it is
// not available or if the kubelet lacks the metric.
package node
