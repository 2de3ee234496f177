// Package serving is the small HTTP server that every program has: /metrics,
// /health-check and, if asked for, /debug/pprof/.
//
// Server serves a registry and a health function, Health watches that passes of
// a loop keep ending, NewRegistry returns a registry with the process and Go
// runtime metrics, and Version tells which build runs.
//
// It uses its own mux, so that nothing another package registers on the default
// one is ever reachable. It serves no admission requests: those have their own
// server with TLS.
package serving
