// Package advice puts together what is known about a VPA's containers, live and
// restored, and makes of it what goes out: a recommendation for the status, and
// contents for the checkpoints.
//
// Advisor does both. It reads the store and the model and changes neither, so
// several goroutines may use it at once, each with its own scratch profile. The
// numbers come from package estimate; rounding, caps and the form of the status
// from package status.
package advice
