// Package prometheus holds tests against a real Prometheus: what the recommender
// loads from it must be what it would have learned live.
//
// Prometheus comes from the package manager: the tests download the Debian
// package into the user's cache directory and unpack it there; nothing is
// installed. Where that is not possible they are skipped and say why.
package prometheus
