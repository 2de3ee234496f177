// Package network creates the network of a real node with a pod network: a device with the node's
// address, and the default route through it. The process must have its own network namespace, so
// that the devices, routes and rules of the machine are unchanged.
//
// A plugin of the distribution connects the pods, see package realnode, and kube-proxy serves
// Services.
package network
