// Package archive reads recorded usage from Prometheus, for the backtester.
//
// Read yields one replay.Recording after the other, in the order of namespace,
// workload and container, and the trace.Problems of what it had to leave out, as
// package trace does for files. It asks first which containers there are, and who
// owns their pods, and then for the use of some of them at a time:
//
//	labels     -> which containers, of which workloads
//	batch 1    [ part 1 | part 2 | … ]  one grid of times for each container
//	batch 2    [ part 1 | part 2 | … ]
//
// So no more than one batch is in memory. A query that fails is sent again; one that
// is too much, or that one series spoils, is sent in halves, until what cannot be
// had is one container. It knows nothing of recipes.
package archive
