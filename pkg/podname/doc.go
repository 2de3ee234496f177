// Package podname tells from the name of a pod what it has in common with the
// other pods of its workload.
//
// It is for pods that are gone: of those that run, the owner is known.
package podname
