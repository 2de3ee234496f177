// Package serving is what every program has around its loop: the ticks, and a small
// HTTP server with /metrics, /health-check and, if asked for, /debug/pprof/.
//
// RunEvery makes passes in turns, and early ones when it is woken. Server serves a
// registry and a health function, Health watches that passes of
// a loop keep ending, NewRegistry returns a registry with the process and Go
// runtime metrics, and Version tells which build runs.
//
// It uses its own mux, so that nothing another package registers on the default
// one is ever reachable. It serves no admission requests: those have their own
// server with TLS.
package serving
