package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// step is an amount, in cores or bytes, and how long it holds. Zero is for good.
type step struct {
	amount float64
	holds  time.Duration
}

// schedule is what is to be used, from the start of the program on. An empty
// one is nothing.
type schedule []step

// at returns the amount after some time. After the last step it stays what it was.
func (s schedule) at(elapsed time.Duration) float64 {
	amount := 0.0
	for _, step := range s {
		amount = step.amount
		if step.holds == 0 || elapsed < step.holds {
			break
		}
		elapsed -= step.holds
	}
	return amount
}

// peak returns the largest amount of all.
func (s schedule) peak() float64 {
	largest := 0.0
	for _, step := range s {
		largest = max(largest, step.amount)
	}
	return largest
}

// parseSchedule reads steps such as 100m:30s,400m: amounts with what they are
// called in Kubernetes, and durations. Only the last step may do without.
func parseSchedule(text string) (schedule, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	var s schedule
	for i, part := range parts {
		amount, duration, bounded := strings.Cut(part, ":")
		parsed, err := parseAmount(amount)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		next := step{amount: parsed}
		if bounded {
			next.holds, err = time.ParseDuration(duration)
			if err != nil || next.holds <= 0 {
				return nil, fmt.Errorf("step %d: want a duration above 0 such as 30s, got %q", i+1, duration)
			}
		} else if i < len(parts)-1 {
			return nil, fmt.Errorf("step %d: want AMOUNT:DURATION, got %q; only the last step may hold for good", i+1, part)
		}
		s = append(s, next)
	}
	return s, nil
}

// units are the suffixes of amounts, longer ones first.
var units = []struct {
	suffix string
	factor float64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"m", 1e-3}, {"", 1}}

func parseAmount(text string) (float64, error) {
	for _, unit := range units {
		number, found := strings.CutSuffix(text, unit.suffix)
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if err != nil || !(value >= 0) || value > 1e15 {
			break
		}
		return value * unit.factor, nil
	}
	return 0, fmt.Errorf("want an amount such as 250m, 2 or 100Mi, got %q", text)
}

// plan is what one run of the program is to use.
type plan struct {
	cpu, memory schedule // cores, bytes
}

// mostCores keeps a slip of the pen from starting a thread for each of a million cores.
const mostCores = 64

// newPlan reads both schedules.
func newPlan(cpu, memory string) (plan, error) {
	var p plan
	var errCPU, errMemory error
	if p.cpu, errCPU = parseSchedule(cpu); errCPU != nil {
		errCPU = fmt.Errorf("-cpu: %w", errCPU)
	} else if p.cpu.peak() > mostCores {
		errCPU = fmt.Errorf("-cpu: want at most %d cores, got %g", mostCores, p.cpu.peak())
	}
	if p.memory, errMemory = parseSchedule(memory); errMemory != nil {
		errMemory = fmt.Errorf("-memory: %w", errMemory)
	}
	return p, errors.Join(errCPU, errMemory)
}
