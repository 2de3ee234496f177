// Package history says how far the history from before the start is loaded, to
// the loop and in metrics: while Loading is not complete, what is known of a
// container may be less than there is, and no published target is lowered.
//
// It loads nothing itself.
package history
