// Package backfill loads the usage of the past from Prometheus.
//
// Loader cuts the past into chunks of a day, asks for one after the other, and
// feeds each into a model and a store of its own under the rules of live
// samples; the loop takes the result between two passes. So neither side ever
// holds the whole past. What fails is asked for again, with growing pauses, and
// delivered by itself; Progress tells how far that is.
//
//	past   [ day 1 | day 2 | … | today ]   one grid of times, as one query would have
//	chunk    series by series -> amounts by container and time -> store
//
// Pods that run now have the labels that they have now; of those that are gone
// Prometheus knows the labels or, failing that, a pod of the same workload that
// runs. What the labels mean to VPAs, package model knows. LoadingGauge says while much of the
// past is missing.
package backfill
