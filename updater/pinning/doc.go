// Package pinning knows which nodes keep pods to the CPU that they were given.
//
// A kubelet whose CPU manager has the static policy refuses to give a pod of class
// Guaranteed other CPU in place. No field of a node tells its policy. Nodes knows the
// nodes that a label selector names, and those that have refused a resize for that
// reason, until they go or a day has passed. Mark writes it on the pods of a view.
//
// It does not judge pods, which disruption.Plan does.
package pinning
