// Package external takes live usage from the external metrics API
// (external.metrics.k8s.io), which a metrics adapter serves.
//
// Source asks, for each pod of each VPA, one question for each configured
// metric, and Decode reads the answer. That is many requests, some at a time and
// within the rate limit of the client; the metrics API or Prometheus need one or
// two for a whole cluster. A metric that has no value gives no sample, and a
// question that fails does not stop the others.
package external
