// Package report puts the scores of a backtest in a form for people and
// programs: a table, JSON, or CSV.
//
// A Document holds everything: the settings, a Row for each container, candidate
// and kind, the summaries of the fleet and its classes, the fronts and the costs.
// Equal scores give equal bytes.
package report
