// Package local is the command line that starts and stops control planes on this machine.
//
// `up` locks the folder of the instance, writes the options and starts a supervisor in a new
// session, which inherits the lock. It prints the supervisor's progress until all components are
// ready, and then exits. `down` terminates the supervisor, and kills it after a timeout.
package local
