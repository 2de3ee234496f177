// Package actuate carries out what disruption.Plan decided.
//
// Change is one Action with the objects it concerns. Cluster resizes and evicts
// on the API server, each with its own rate limit, marks resized pods and writes
// events; Rehearsal only says what would be done. Both give an error that tells
// why a change did not come about: ErrRateLimited ends a pass, and Refused and
// NoCapacity read the answer of the API server.
//
// Every write names the UID of its pod, so that a namesake that replaced the pod
// is never hit. It decides nothing: whether a refused resize becomes an eviction
// is up to the caller.
package actuate
