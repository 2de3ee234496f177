// Burn is the program in the image of the real node. It uses CPU and memory according to a
// schedule, so that the usage of a pod is known in advance.
//
// A schedule is a list of steps with an amount and a duration. The last step lasts forever. Threads
// measure their own CPU time, so a busy machine delays the work without losing it.
//
// Without a schedule it only waits for SIGTERM, so it is also the pause container of the pods. It
// uses only the standard library, because the image contains this single file.
package main
