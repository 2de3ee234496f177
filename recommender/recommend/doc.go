// Package recommend puts together what is known about a VPA's containers, live and
// restored, and makes of it what goes out: a recommendation for the status, and
// contents for the checkpoints.
//
// Publisher is the road from changed VPAs to their written statuses. It asks Advisor, which
// makes recommendations and checkpoint contents. Advisor reads the store and the model and changes neither, but for
// what it notes in a VPA about its advice, so several goroutines may use it at once
// for different VPAs, each with its own scratch profile. SketchKeeper gives each VPA its
// recipe and fills the sketches that it asks for.
//
// The numbers come from package recipe, their form from package convert, caps and
// rounding from package policy; the status is put together by package status.
package recommend
