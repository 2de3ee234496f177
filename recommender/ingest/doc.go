// Package ingest is the step of a pass that adds usage: one sample of each
// container, then the out-of-memory kills that were seen since the last pass.
//
// Ingester takes samples from a source into the store and counts what became of
// each; Quality compares them with what had been recommended; an outage of the
// source is told when it begins and ends, not in every pass.
//
// It belongs to the goroutine of the loop. Which sample counts, package usage
// decides.
package ingest
