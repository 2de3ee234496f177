// Package surroundings knows what stands around pods and VPAs in the cluster.
//
// Cluster holds it: the ResourceQuotas of each namespace, the largest node, other
// VPAs on a target, HorizontalPodAutoscalers, and the target itself. All of it is
// optional. Where the program may not read something, as in an installation with
// the permissions of the reference VPA, it does without and says so once.
//
// Advise turns what is known into warnings about a VPA that is accepted, but
// probably not what its author wants. It refuses nothing.
package surroundings
