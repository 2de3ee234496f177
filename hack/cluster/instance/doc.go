// Package instance is what lies in the Folder of one local control plane:
// Options and State, certificates and kubeconfigs, logs, and for every component
// its Process.
//
// Two rules make it safe. The lock is the one truth about whether an instance
// runs: the supervisor holds it and the kernel releases it with the supervisor.
// And a process is known by its number and its start time, so that a number
// that meanwhile belongs to somebody else is never signalled.
//
// The package starts nothing; that is done in package supervise. It needs Linux
// for /proc.
package instance
