// Package live takes the usage of right now from Prometheus, in the shape of the
// other sources.
//
// It knows no history; package backfill of the recommender loads that.
package live
