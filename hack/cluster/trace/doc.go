// Package trace reads recorded usage: a Library of CSV files, and Trace.Visit, which plays an
// endlessly repeated recording at any speed. Parse documents the file format.
package trace
