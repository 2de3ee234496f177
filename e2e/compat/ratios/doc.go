// Ratios reads the output of the benchmarks of package compat, passes it on and
// ends with a table: what upstream and Loadline need for the same, and whether
// that reaches what is required. Of several runs the fastest counts. It exits with
// 1 if something does not, or was not measured.
//
//	go test -run '^$' -bench . ./compat | go run ./compat/ratios
package main
