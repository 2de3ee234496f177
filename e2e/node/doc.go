// Package node keeps the promises about running pods on a real node: a kubelet,
// containerd, runc and the cgroups of the kernel, with usage that containers
// really have (see hack/cluster, up --real-node).
//
// It runs as root, when the variable LOADLINE_CLUSTER names the control plane's
// program, as `make e2e-node` does. Where the node cannot be started the tests
// are skipped and say why; with LOADLINE_NODE=required that is a failure. A
// promise that is not kept is a failure always. At the end it prints how long
// everything took, for lab/docs/real-node.md.
//
// A real Prometheus scrapes the kubelet. What only that knows is skipped, and says so, where
// there is none, or where the kubelet does not have the figure.
package node
