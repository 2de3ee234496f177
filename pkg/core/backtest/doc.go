// Package backtest replays the recorded use of a container under several
// candidates and scores each of them.
//
// A Candidate is a name and a way to make an Advisor. Run takes a recording and
// returns a Result for each candidate and kind, in this order. Recipe makes a
// candidate of a recipe, Baselines those that every recipe is compared with.
//
// A Scorer watches one replay and sums a Tally for each phase; Summarise, Compare and
// Front say what the Results of many containers mean together. Equal input gives equal
// bytes: there is no clock, no chance and no order of a map.
package backtest
