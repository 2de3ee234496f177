// Package budgets knows which PodDisruptionBudgets count a pod, and sees to it that of
// the pods of one budget, or of one owner, one is restarted after the other.
//
// Mark gives the planner the budgets of its pods, and pods of no VPA that may be
// restarting. Enter is asked right before a pod is restarted or evicted, minutes after the
// plan or without one: it looks at the pods of the namespace as they are now, and at what
// was done a moment ago and is in no cache yet. How long others wait is up to the planner,
// whose state Planned hands over; this package keeps none of its own.
//
// It does not ask whether a budget allows a disruption: the API server does.
package budgets
