// Package metricsserver takes live usage from the metrics API
// (metrics.k8s.io), which metrics-server usually serves.
//
// Source makes one list request for all pods and Decode reads the answer while
// it arrives, item by item, so that a large cluster never sits in memory as
// objects. Each resource of each container gives a sample; one that the answer
// lacks gives none, because it is not known to be zero.
//
// It neither decides which containers matter nor which sample is too old;
// package usage does. The typed client of k8s.io/metrics is not used: it would
// build the whole list first, and adds half a megabyte to the binary.
package metricsserver
