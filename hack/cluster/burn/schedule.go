package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// step is an amount in cores or bytes, and its duration. Zero lasts forever.
type step struct {
	amount   float64
	duration time.Duration
}

type schedule []step

// at returns the amount after the elapsed time.
func (s schedule) at(elapsed time.Duration) float64 {
	amount := 0.0
	for _, step := range s {
		amount = step.amount
		if step.duration == 0 || elapsed < step.duration {
			break
		}
		elapsed -= step.duration
	}
	return amount
}

func (s schedule) peak() float64 {
	largest := 0.0
	for _, step := range s {
		largest = max(largest, step.amount)
	}
	return largest
}

// parseSchedule parses steps such as 100m:30s,400m. Only the last step may omit the duration.
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
			next.duration, err = time.ParseDuration(duration)
			if err != nil || next.duration <= 0 {
				return nil, fmt.Errorf("step %d: want a duration above 0 such as 30s, got %q", i+1, duration)
			}
		} else if i < len(parts)-1 {
			return nil, fmt.Errorf("step %d: want AMOUNT:DURATION, got %q; only the last step may hold for good", i+1, part)
		}
		s = append(s, next)
	}
	return s, nil
}

// units are the suffixes of amounts. The empty one must be last.
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

type plan struct {
	cpu, memory schedule // cores, bytes
}

// maxCores prevents a typing error from starting a million threads.
const maxCores = 64

func newPlan(cpu, memory string) (plan, error) {
	var p plan
	var errCPU, errMemory error
	if p.cpu, errCPU = parseSchedule(cpu); errCPU != nil {
		errCPU = fmt.Errorf("-cpu: %w", errCPU)
	} else if p.cpu.peak() > maxCores {
		errCPU = fmt.Errorf("-cpu: want at most %d cores, got %g", maxCores, p.cpu.peak())
	}
	if p.memory, errMemory = parseSchedule(memory); errMemory != nil {
		errMemory = fmt.Errorf("-memory: %w", errMemory)
	}
	return p, errors.Join(errCPU, errMemory)
}
