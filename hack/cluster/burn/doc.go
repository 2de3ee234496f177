// Burn is the program in the image of the real node: it uses as much cpu and
// memory as a schedule says, and so gives pods a usage that is known beforehand.
//
// A schedule is a list of steps, each an amount and how long it holds; the last
// one holds for good. Cpu is spent by threads that watch their own cpu clock, so
// a busy machine delays the work and does not lose it; memory is mapped, written
// to and given back page by page.
//
// Without a schedule it only waits for SIGTERM, which makes it the pause
// container of the pods too. It uses nothing but the standard library: the image
// holds this one file.
package main
