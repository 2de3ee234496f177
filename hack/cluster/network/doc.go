// Package network makes the network of a real node whose pods have one: a device
// with the node's address, and the default route through it. All of it lies in
// the network namespace of the calling process, which must be one of its own, so
// that the machine's devices, routes and rules stay as they are.
//
// Pods are connected by a plugin of the distribution, and Services served by
// kube-proxy; see packages realnode and supervise.
package network
