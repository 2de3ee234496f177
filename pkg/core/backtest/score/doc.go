// Package score measures how well a replay went, in the terms of the published
// work on vertical autoscaling: slack, out-of-memory kills, starvation,
// disruption, convergence.
//
// A Scorer is the witness of one kind in one replay; Result is what it found,
// the warm-up (Cold) apart from the rest (Scored). Tally holds sums only, so that
// those of many containers can be added; its methods are the measures.
//
// Times are seconds, amounts those of the kind (millicores or bytes), their
// products amount times seconds. It puts no containers together; package fleet
// does.
package score
