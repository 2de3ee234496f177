// Package cgroup creates and removes the control groups for the pods of a real node.
//
// A Group is named after the supervisor of its instance, so that RemoveStale can identify the
// groups of killed supervisors. Such groups are empty, because the kernel has ended their
// processes.
package cgroup
