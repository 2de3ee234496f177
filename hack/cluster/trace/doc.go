// Package trace reads recorded usage: a Library of CSV files, and Trace.Visit,
// which walks through an endlessly repeated recording at any speed. The form of
// the files is said at Parse.
//
// It knows nothing of pods and limits; see package play.
package trace
