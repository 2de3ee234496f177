// Package past is what one plan must know of earlier ones.
//
// Memory holds since when pods are in a resize, or have no room for one, what their
// nodes have refused, what was asked for in vain, and what came of the last change of
// each workload. A plan hands out the Memory for the next; what happens to its actions
// is told with Refuse, Tried and Did.
//
// It does not decide anything, and does not outlive the process.
package past
