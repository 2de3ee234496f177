package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc.
const tick = time.Second / 100

// ProcessorTime returns the CPU time of a process in user and kernel mode.
func ProcessorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in parentheses that may contain spaces. Counted after it, user and
	// kernel mode are fields 12 and 13.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	sum := time.Duration(0)
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// Memory returns the current and the peak resident size of a process in bytes.
func Memory(pid int) (current, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/status: %w", pid, err)
		}
		switch fields[0] {
		case "VmRSS:":
			current = kilobytes << 10
		case "VmHWM:":
			peak = kilobytes << 10
		}
	}
	return current, peak, nil
}
