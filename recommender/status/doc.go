// Package status turns a recommendation into the status of a VPA and writes it.
//
// Compose makes the whole new status: recommendation, conditions and the
// generation that was observed. Writer sends it as one patch of the status
// subresource, and only if it says something new.
//
// The package does not decide what to recommend.
package status
