// Package prometheus asks Prometheus, or what speaks its query API.
//
// Client sends instant and range queries. Decode reads an answer while it
// arrives and hands it on series by series, so that a large answer never sits in
// memory; it bounds how long an answer may be. Values that are no number, or
// infinite, are left out and counted. Usage knows the names of usage metrics and
// their labels: it writes the queries and tells which container a series is of.
//
// Package access has the flags that say who asks, and live takes the usage of right
// now. Loading history, with its retries, is what package backfill does for the
// recommender and archive for the backtester.
package prometheus
