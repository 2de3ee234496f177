// Package options holds the flag groups that only the recommender has: how
// samples become histories (Aggregation), how those are kept (Checkpoints), how
// recommendations are rounded and capped (Output), and where usage comes from
// (Prometheus, External).
//
// Each group has AddFlags and Validate like those of package flags, and turns
// itself into the settings of the package it is for. Groups that several
// programs share are in package flags.
package options
