// Package trace reads recorded usage from files, for the backtester.
//
// A file is a CSV, plain or compressed by gzip, with the columns that Columns
// names, the samples of one container one after the other and in order of time.
// Read yields one replay.Recording after the other and keeps no more than one. What
// is wrong is a Problem with file, line and column; a container with a problem is
// left out, or kept if it is only a warning, and the others go on.
//
// It does not know what the samples are for.
package trace
