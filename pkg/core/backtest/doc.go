// Package backtest replays the recorded use of a container under several
// candidates and scores each of them.
//
// A Candidate is a name and a way to make an Advisor. Run takes a recording and
// returns a score.Result for each candidate and kind, in this order. Candidates
// does so for recipes and Baselines for what every recipe is compared with.
//
// The parts: tape (recordings), replay (what happens), contender (who
// recommends), score (measures of one container), fleet (those of many), film (to
// look at). Equal input gives equal bytes: there is no clock, no chance and no
// order of a map.
package backtest
