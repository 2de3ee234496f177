// Package autoscaler tells whether something shows that nodes are added to a cluster
// for pods that find none.
//
// Find looks for the status of cluster-autoscaler, for nodes and NodePools of Karpenter
// and, where that status may not be read, for nodes of managed pools. It does not know
// whether another node would be added for a certain pod.
package autoscaler
