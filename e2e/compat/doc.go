// Package compat compares Loadline with the upstream Vertical Pod Autoscaler
// module, release 1.8.1, which it imports or reads for that purpose only.
//
// The custom resource definitions must be equal but for their descriptions and
// the short names that Loadline adds; random objects must pass through the Go
// types of both sides without losing or changing anything; and the rules of
// our definitions are tried with good and bad objects, one bad object for each
// rule.
//
// The recommenders of both sides live through the same random histories and must
// recommend the same and write the same checkpoints (TestRandomHistories); where
// they differ on purpose the histories avoid it and a scene shows both ways. The
// metrics of our programs must be upstream's and some with our prefix. Benchmarks
// give both sides the same input; `make bench-compat` ends with their ratios.
//
// It has tests only, needs no cluster, and runs with `make compat`, or with
// `cd e2e && go test ./compat/...` for fewer histories.
package compat
