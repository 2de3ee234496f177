// Package updating translates the vectors of updater.json into calls of
// production code.
//
// Handlers lists the kinds, ByDesign the cases in which Loadline is better than
// the reference on purpose. The handlers read pods and VPAs through the
// updater's own view, ask package disruption, and build patches with package
// actuate.
//
// It computes nothing that production code computes.
package updating
