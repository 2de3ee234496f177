// Ratios reads the output of the benchmarks of package compat, passes it on and
// ends with a table: what upstream and Loadline need for the same, and whether
// that reaches what is required. A benchmark measures both in turns; the ratio is
// the median of those of the pairs, each other figure the median of its rounds. It
// exits with 1 if something does not reach it, or was not measured.
//
//	go test -run '^$' -bench . ./compat -rounds=9 | go run ./compat/ratios
package main
