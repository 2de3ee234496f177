// Package intake collects what watches report until the next pass takes it.
//
// Changes is the handler of the pod informer: the latest state of each pod that
// changed. OOMs is the queue of out-of-memory kills, which never blocks who adds
// to it. Evictions watches eviction events and remembers which it has seen,
// because each new watch repeats those that the server still has.
//
// All of it is safe for concurrent use. What a kill is, package feed knows.
package intake
