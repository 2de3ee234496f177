// Package instance manages the Folder of one local control plane: Options and State, certificates
// and kubeconfigs, logs, and the Process of each component. Package supervise starts the processes.
//
// Two rules make it safe. An instance runs if and only if its folder is locked: the kernel releases
// the lock when the supervisor ends. A process is identified by its ID and its start time in /proc,
// so that a reused process ID is never signalled.
package instance
