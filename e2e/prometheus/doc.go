// Package prometheus holds tests against a real Prometheus: what the recommender
// loads from it must be what it would have learned live.
//
// Package server beside it gets and runs one. Where that is not possible the tests
// are skipped and say why.
package prometheus
