// Package lease is about the two kinds of Lease objects that the programs use.
//
// Lead runs work only while this process holds a leader Lease, so that of
// several replicas one works. Beat writes, and Alive reads, the heartbeat of the
// admission controller: the updater evicts no pod while nobody would give the
// new one its resources.
//
// The heartbeat says that a process is alive, not more; whether a webhook is
// reachable is for the admission controller to find out before it beats.
package lease
