// Package vectors runs files of conformance vectors against handlers.
//
// A vector is a case: an input, and the output that some reference gave for it.
// Load reads a directory of vector files, Suite says which handler runs which
// kind of case, Suite.Run makes a Report of it. Typed makes a handler of a
// function; Compare finds the differences of two JSON values, with a tolerance
// for fractions.
//
// A case that production code answers differently on purpose is listed in
// Suite.ByDesign: it passes only if it differs in the listed way.
//
// The package knows the formats of the files, not the meaning of any kind; the
// handlers live with the programs whose code they call.
package vectors
