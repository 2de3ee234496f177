// Package cgroup makes and removes the control groups that hold the pods of a
// real node.
//
// A Group is named after the process that made it, the supervisor of an
// instance. So the groups that a killed one leaves, empty as the kernel ended its
// processes, can be told from those of the living, and RemoveStale removes them.
package cgroup
