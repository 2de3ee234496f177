// Package supervise runs one instance of the local control plane. Main is a
// process of its own: it picks free ports, issues certificates, starts the
// components as its children, fills the API server (bootstrap) and then
// watches. When one component ends, all end.
//
// The kernel kills the children when the supervisor dies, whatever the reason,
// so nothing can be left behind. While it is being started, and for as long as
// `run` wants it, the supervisor also ends with the command that started it.
//
// Components are started by name from the supervisor's own program file; none
// is imported here. The real node, if there is one, is such a component too: see
// package realnode. The stages of the simulation are in stages/; a user's folder can
// add others or replace them.
package supervise
