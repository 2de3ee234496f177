// Package compat compares Loadline with the upstream Vertical Pod Autoscaler
// module, release 1.8.1, which it imports or reads for that purpose only.
//
// The custom resource definitions must be equal but for their descriptions and
// the short names that Loadline adds; random objects must pass through the Go
// types of both sides without losing or changing anything; and the rules of
// our definitions are tried with good and bad objects, one bad object for each
// rule.
//
// It has tests only, needs no cluster, and runs with
// `cd e2e && go test ./compat/...`.
package compat
