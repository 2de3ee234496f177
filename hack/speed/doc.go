// Command speed measures how fast recordings are replayed, and in how much memory.
//
// It runs a program, built by `make plugin`, on each recording of a directory alone,
// one after the other, and prints a table: rows, time, rows a minute of real time and
// of processor time, and the most memory that was resident.
//
//	go run ./hack/speed [-plugin FILE] [-recipe NAME] [-runs N] DIRECTORY
package main
