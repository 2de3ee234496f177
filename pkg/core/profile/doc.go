// Package profile holds what is known about the past of a container: how much
// CPU it used, how high its memory peaked, and from when to when it was seen.
//
// Its types are Profile, Shape (the half-lives its histograms decay with) and
// Image (a profile as a checkpoint stores it). Profiles merge, so the history
// of all pods of a workload, live and restored, becomes one.
//
// It does not decide what counts as a peak or which sample is too old; package
// usage does. It makes no recommendation; package estimate does.
package profile
