// Package model holds what the cluster looks like to the recommender: which pods run,
// which VPA selects them, and which of their containers ran out of memory.
//
// Model holds the indexes: by namespace, and within it by distinct label set, so that
// no step compares all pods with all VPAs; the pods of a label set feed the same series
// of the usage store, and its VPAs are known. When the last pod of a label set goes, its
// history becomes part of that of its successors: without the labels of generations, and
// of single runs, which are found by their many values. Where much is left that nobody
// has or selects, it goes within hours. A VPA has a revision, which changes when there is
// something new to compute.
//
// Changes and OOMs are queues that informers fill and the loop drains; PodOOMs and
// EvictionOOMs are the rules by which a kill is recognised. Roster reads the VPAs of a
// pass with what their targets select.
//
// Model belongs to the goroutine of the loop. The package makes no recommendation and
// writes nothing.
package model
