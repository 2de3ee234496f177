// Package prometheus tests against a real Prometheus that the recommender loads the same history
// from it as it would have learned live.
//
// Package server downloads and runs one. Otherwise the tests are skipped with the reason.
package prometheus
