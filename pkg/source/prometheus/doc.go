// Package prometheus asks Prometheus, or what speaks its query API.
//
// Client sends instant and range queries; Access has the flags that say as whom. Decode
// reads an answer while it arrives and hands it on series by series, so that a large
// answer never sits in memory; it bounds how long an answer may be. Values that are no
// number, or infinite, are left out and counted. Usage knows the names of usage metrics
// and their labels: it writes the queries and tells which container a series is of.
//
// Live takes the usage of right now, ReadArchive makes recordings for the backtester.
// History for the recommender, with its retries, is loaded by its package backfill.
package prometheus
