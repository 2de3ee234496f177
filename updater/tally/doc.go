// Package tally holds the metrics of the updater. Their names, labels and buckets
// are those of the reference VPA; ours begin with loadline_.
//
// A Score is what one pass does for one VPA; Publish makes the gauges of all
// scores of a pass. Counters count what happened, and go when a VPA is deleted.
package tally
