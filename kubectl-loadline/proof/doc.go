// Package proof is the command backtest: it replays recorded usage under several
// recipes and tells how good their recommendations were.
//
// config.go has the flags, package shelf finds the recordings, run.go replays containers
// side by side, with as many in memory as there are workers, and main.go puts the
// result out in the form that was asked for; package report makes it.
//
// It judges nothing itself; the packages below pkg/core/backtest do.
package proof
