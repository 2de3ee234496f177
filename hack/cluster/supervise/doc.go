// Package supervise runs one instance of the local control plane. Main is a separate process: it
// selects free ports, issues certificates, starts the components as its children, creates the
// initial objects and monitors the components. When one component ends, all end.
//
// The kernel kills the children when the supervisor ends for any reason, so no process is left
// behind. During the start, and during the whole `run` command, the supervisor ends with the
// command that started it.
//
// Components are started by name from the supervisor's own program file, and none is imported here.
package supervise
