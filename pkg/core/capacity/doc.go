// Package capacity says whether a larger pod would find room.
//
// A Capacity is what nodes and quotas have left. Resize asks whether a pod can grow
// where it is, Place whether a pod that is evicted would find a node; both ask the
// quotas of the namespace that count the pod by their scopes, too. Keep takes what a
// change will need, so that two pods are not promised the same room.
//
// It knows nothing of what else binds pods to nodes, such as taints and affinity: it
// can say that there is no room, not that there is.
package capacity
