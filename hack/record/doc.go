// Command record writes down what running processes use, once a second, in the
// form that the local control plane plays back for simulated pods: a CSV file,
// compressed if its name ends in .gz, with the columns
//
//	time          seconds since the start of the recording
//	cpu_cores     cores used from this time until the next line's
//	memory_bytes  resident memory at the end of that stretch
//
// Processes are chosen by number or by a regular expression on their command
// line; several are added up, and those that appear later join in. A recording
// ends after a given time, on an interrupt, or when no process is left; with -gaps
// it goes on then, without lines for that time, as for the runs of a job.
//
// With -cgroup one more column, throttled_share, says for which share of a stretch a
// control group was kept from running by its limit.
//
// It reads /proc and so runs on Linux only. Cpu time comes in steps of a clock
// tick, 10 ms on all common machines. It does not see what a process used
// between the last reading and its end.
package main
