// Package recommend puts together what is known about a VPA's containers, live and
// restored, and makes of it what goes out: a recommendation for the status, and
// contents for the checkpoints.
//
// Advisor does both. It reads the store and the model and changes neither, but for
// what it notes in a VPA about its advice, so several goroutines may use it at once
// for different VPAs, each with its own scratch profile. SketchKeeper gives each VPA its
// recipe and fills the sketches that it asks for. PostProcess applies the limits of the
// command line.
//
// The numbers come from package recipe, their form from package convert, caps and
// rounding from package policy; the status is put together by package status.
package recommend
