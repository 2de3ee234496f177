package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

// observation is the state of a recommender at one moment.
type observation struct {
	metrics   map[string]float64 // by name with labels
	cpu       time.Duration      // processor time since its start
	rss, peak int64              // bytes
	at        time.Time
	load      float64 // processes of the machine that run or want to, over the last minute
}

const latency = "vpa_recommender_execution_latency_seconds"

// passes tells how many have ended since the start.
func (o observation) passes() int {
	return int(o.metrics[latency+`_count{step="`+total+`"}`])
}

// spent tells how long all passes were in a step.
func (o observation) spent(step string) time.Duration {
	return time.Duration(o.metrics[latency+`_sum{step="`+step+`"}`] * float64(time.Second))
}

func observe(ctx context.Context, d *harness.Daemon) (o observation, err error) {
	o.at = time.Now()
	if o.metrics, err = d.Metrics(ctx); err != nil {
		return o, err
	}
	if o.cpu, err = processorTime(d.PID()); err != nil {
		return o, err
	}
	if o.rss, o.peak, err = memory(d.PID()); err != nil {
		return o, err
	}
	o.load, err = machineLoad()
	return o, err
}

// tick is the unit of processor time in /proc.
const tick = time.Second / 100

// processorTime reads what a process has used, in user and kernel mode.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in brackets that may hold blanks; counted from
	// there, user and kernel mode are 12th and 13th.
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

// machineLoad reads the load average of the last minute.
func machineLoad() (load float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(text), &load)
	return load, err
}

// memory reads the resident size of a process, now and at most, in bytes.
func memory(pid int) (now, most int64, err error) {
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
			now = kilobytes << 10
		case "VmHWM:":
			most = kilobytes << 10
		}
	}
	return now, most, nil
}
