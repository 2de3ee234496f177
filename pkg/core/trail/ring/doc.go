// Package ring has what the compact parts of a trail are made of: slots by number,
// amounts as codes of two bytes, and their form on disk.
//
//	slots  [ .  .  #  #  #  #  #  . ]     by the number of a window, modulo the ring
//	                        ^ running
//
// A Writer makes bytes of numbers and a Reader numbers of bytes; the same numbers
// always give the same bytes.
//
// It knows no recipe and no usage.
package ring
