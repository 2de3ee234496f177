// Package source takes live usage from the APIs of the cluster.
//
// MetricsServer reads the metrics API (metrics.k8s.io), all pods at once. External asks
// the external metrics API (external.metrics.k8s.io), which a metrics adapter serves: one
// question for each pod of each VPA and configured metric, some at a time and within the
// rate limit of the client. A metric that has no value gives no sample, and a question
// that fails does not stop the others.
//
// Package prometheus takes usage from there, package trace from files.
package source
