package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the kernel's unit of cpu time in /proc. It is 100 on every
// architecture Go runs on.
const ticksPerSecond = 100

// choice says which processes to record: one by number, or those whose command
// line matches, without this one and its ancestors, whose command lines hold
// the pattern too.
type choice struct {
	pid     int
	pattern *regexp.Regexp
	not     int
}

// usage of one process: cpu ticks since its start, resident bytes.
type usage struct {
	ticks, memory int64
}

// process names a process for good, as numbers are used again.
type process struct {
	pid   int
	start int64
}

// reading is the usage of all chosen processes at one time.
type reading map[process]usage

// since returns the cpu seconds used after an earlier reading. A process that
// was not there then counts from its start.
func (r reading) since(before reading) float64 {
	var ticks int64
	for p, u := range r {
		ticks += u.ticks - before[p].ticks
	}
	return float64(ticks) / ticksPerSecond
}

func (r reading) memory() int64 {
	var sum int64
	for _, u := range r {
		sum += u.memory
	}
	return sum
}

// stat holds the fields we need of /proc/PID/stat.
type stat struct {
	parent int
	start  int64
	usage  usage
}

// read looks the chosen processes up. A process that ends meanwhile is left out.
func read(proc fs.FS, c choice) (reading, error) {
	found := reading{}
	if c.pid != 0 {
		if s, ok := readStat(proc, c.pid); ok {
			found[process{c.pid, s.start}] = s.usage
		}
		return found, nil
	}
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	own := ancestors(proc, c.not)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || own[pid] {
			continue
		}
		line, err := fs.ReadFile(proc, entry.Name()+"/cmdline")
		if err != nil || !c.pattern.Match(bytes.ReplaceAll(line, []byte{0}, []byte{' '})) {
			continue
		}
		if s, ok := readStat(proc, pid); ok {
			found[process{pid, s.start}] = s.usage
		}
	}
	return found, nil
}

// ancestors returns a process and everything it was started by.
func ancestors(proc fs.FS, pid int) map[int]bool {
	all := map[int]bool{}
	for pid > 0 && !all[pid] {
		all[pid] = true
		s, _ := readStat(proc, pid)
		pid = s.parent
	}
	return all
}

// Positions in /proc/PID/stat, counted from the field after the name.
const (
	parentField = 1
	utimeField  = 11
	stimeField  = 12
	startField  = 19
	rssField    = 21
)

func readStat(proc fs.FS, pid int) (stat, bool) {
	data, err := fs.ReadFile(proc, strconv.Itoa(pid)+"/stat")
	if err != nil {
		return stat{}, false
	}
	// The name may hold spaces and parentheses itself; the last one counts.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= rssField {
		return stat{}, false
	}
	number := func(field int) int64 {
		value, err := strconv.ParseInt(fields[field], 10, 64)
		if err != nil {
			return 0
		}
		return value
	}
	return stat{
		parent: int(number(parentField)),
		start:  number(startField),
		usage: usage{
			ticks:  number(utimeField) + number(stimeField),
			memory: number(rssField) * int64(os.Getpagesize()),
		},
	}, true
}

// throttled returns how long a control group was kept from running by its limit so
// far, added up over processors. Version 1 of control groups tells it in nanoseconds,
// version 2 in microseconds.
func throttled(group fs.FS) (time.Duration, error) {
	data, err := fs.ReadFile(group, "cpu.stat")
	if err != nil {
		return 0, fmt.Errorf("-cgroup: want the folder of a cpu control group: %w", err)
	}
	units := map[string]time.Duration{"throttled_time": time.Nanosecond, "throttled_usec": time.Microsecond}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || units[fields[0]] == 0 {
			continue
		}
		count, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("-cgroup: read cpu.stat: %w", err)
		}
		return time.Duration(count) * units[fields[0]], nil
	}
	return 0, errors.New("-cgroup: want a cpu.stat with throttled_time or throttled_usec: is a limit possible for this group?")
}
