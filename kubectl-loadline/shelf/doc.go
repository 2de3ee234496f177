// Package shelf finds the recordings that arguments of the command backtest name.
//
// An argument is a file, a directory or the address of a Prometheus; Find makes
// Sources of them. Servers are the flags that say what is asked of a Prometheus.
//
// Reading is done by the packages trace and archive; package proof replays what
// they yield.
package shelf
