// Package local is the command line that starts and stops control planes on this
// machine: up, down, run, status, load and fetch.
//
// `up` locks the instance's folder, writes the options into it and starts a
// supervisor in a session of its own, to which it hands the lock. It shows the
// supervisor's progress until all is ready, and then lets go. `down` asks the
// supervisor to stop and insists if need be.
//
// What is in the folder is the business of package instance, what runs that of
// package supervise.
package local
