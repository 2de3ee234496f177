// Package compat compares Loadline with release 1.8.1 of the upstream Vertical Pod Autoscaler,
// which it imports or reads for that purpose only.
//
// The custom resource definitions must be equal, except for their descriptions and the short names
// that Loadline adds. Random objects must pass through the Go types of both sides without loss or
// change. Each rule of our definitions is tested with valid objects and an invalid one.
//
// The recommenders of both sides replay the same random histories and must produce the same
// recommendations and checkpoints (TestRandomHistories). The histories avoid deliberate
// differences, which separate tests demonstrate. Our programs must expose the metrics of upstream,
// and others only with our prefix. Benchmarks give both sides the same input. Their ratios are
// printed by `make bench-compat`.
//
// It has tests only and needs no cluster. Run it with `make compat`, or with fewer histories with
// `cd e2e && go test ./compat/...`.
package compat
