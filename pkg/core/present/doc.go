// Package present holds the part of a cluster that a plan is made for: VPAs with the pods
// they control, as plain values.
//
// A Container has what it runs with, what its spec asks for and what policy.Fit would
// give it. What follows from one pod alone is asked here: whether it would change or
// restart, which class it is of, what it needs of its node and its quotas.
//
// It does not decide what is done with pods, which disruption does, and does not look
// from one pod to another.
package present
