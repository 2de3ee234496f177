// Package budgets knows which PodDisruptionBudgets count a pod, and sees to it that of
// the pods of one budget, or of one owner, one is restarted after the other.
//
// Mark tells the planner which budgets count its pods. Enter is asked right before a
// pod is restarted or evicted: it looks at all pods of the namespace, those that no VPA
// controls any more included, and at what was done a moment ago and is in no cache yet.
//
// It does not ask whether a budget allows a disruption: the API server does.
package budgets
