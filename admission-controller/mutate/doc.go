// Package mutate computes what the webhook changes in a new pod.
//
// Config.Patch takes a pod, the VPA that controls it and the LimitRanges of its
// namespace, and returns a JSON patch: the resources that policy.Fit gives,
// the startup boost, and the annotations of the VPA. It is pure: equal input
// gives an equal patch, byte for byte.
//
// A Room is what the quotas of a namespace have left: what a pod would get beyond it is cut.
//
// Only ordinary containers are changed. Init containers, native sidecars and
// containers without a recommendation are left as they are. It neither looks
// for the VPA (package target) nor speaks HTTP (package server).
package mutate
