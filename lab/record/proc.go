package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// processFilter selects a process by number, or all processes with a matching command line. The
// latter excludes this process and its ancestors, because their command lines contain the pattern.
type processFilter struct {
	pid     int
	pattern *regexp.Regexp
	self    int
}

// process identifies a process uniquely, because process numbers are reused.
type process struct {
	pid   int
	start uint64
}

type reading map[process]procfs.ProcStat

// cpuSince returns the CPU seconds used since an earlier reading. A new process counts from its
// start.
func (r reading) cpuSince(before reading) (seconds float64) {
	for p, s := range r {
		earlier := before[p]
		seconds += s.CPUTime() - earlier.CPUTime()
	}
	return seconds
}

func (r reading) memory() (bytes int) {
	for _, s := range r {
		bytes += s.ResidentMemory()
	}
	return bytes
}

// readProcesses reads the chosen processes. It skips a process that ends meanwhile.
func readProcesses(proc procfs.FS, c processFilter) (reading, error) {
	found := reading{}
	all, err := proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	own := ancestors(proc, c.self)
	for _, p := range all {
		if c.pid == 0 {
			line, err := p.CmdLine()
			if err != nil || own[p.PID] || !c.pattern.MatchString(strings.Join(line, " ")) {
				continue
			}
		} else if p.PID != c.pid {
			continue
		}
		if s, err := p.Stat(); err == nil {
			found[process{p.PID, s.Starttime}] = s
		}
	}
	return found, nil
}

func ancestors(proc procfs.FS, pid int) map[int]bool {
	all := map[int]bool{}
	for pid > 0 && !all[pid] {
		all[pid] = true
		p, _ := proc.Proc(pid)
		s, _ := p.Stat()
		pid = s.PPID
	}
	return all
}

// readThrottled returns the time that a cgroup was throttled by its limit so far, summed over CPUs.
// cgroup v1 reports nanoseconds, v2 microseconds.
func readThrottled(group fs.FS) (time.Duration, error) {
	data, err := fs.ReadFile(group, "cpu.stat")
	if err != nil {
		return 0, fmt.Errorf("-cgroup: want the folder of a CPU cgroup: %w", err)
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
	return 0, errors.New("-cgroup: want a cpu.stat with throttled_time or throttled_usec: does this cgroup support CPU limits?")
}
