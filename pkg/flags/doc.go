// Package flags holds what the command lines of the programs have in common:
// the flag groups Kube, Logging, Election, Serving and Gates, which a binary
// embeds in its Config, and Program, which parses, validates and runs.
//
// Each group has AddFlags, which binds to a given flag set with the group's
// present values as the defaults, and Validate, which returns all problems
// joined. A problem names the flag, the value and what would be right.
//
// The package keeps no state and touches no global flag set, so tests can parse
// in parallel; only Logging.Apply changes the process, by configuring klog. It
// reads no file and exits nowhere: main does.
package flags
