package trace

import (
	"fmt"
	"math"
	"os"
)

// ProcessSample is the usage of processes from its time until the next sample.
type ProcessSample struct {
	At, CPU, Memory float64 // seconds since the start, cores, bytes
	Throttled       float64 // share of time throttled by a limit, NaN if not recorded
}

// ReadProcess reads a recording of the command lab/record.
func ReadProcess(file string) (samples []ProcessSample, err error) {
	content, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	defer content.Close()
	names := []string{"time", "cpu_cores", "memory_bytes", "throttled_share"}
	l, problem := newLines(content, file, names, len(names)-1)
	for problem == nil {
		var more bool
		if more, problem = l.next(); !more || problem != nil {
			break
		}
		var s ProcessSample
		for column, to := range []*float64{&s.At, &s.CPU, &s.Memory, &s.Throttled} {
			if *to, problem = l.value(column); problem != nil {
				return nil, problem
			}
			if math.IsNaN(*to) && to != &s.Throttled {
				return nil, l.problem(names[column], "is empty: expected a number")
			}
		}
		if n := len(samples); n > 0 && s.At < samples[n-1].At { // times are rounded, so two may be equal
			return nil, l.problem(names[0], "is %v: expected %v, as in the line before, or later", s.At, samples[n-1].At)
		}
		samples = append(samples, s)
	}
	if problem == nil && len(samples) == 0 {
		problem = l.problem("", "has no samples: expected at least one line after the first")
	}
	if problem != nil {
		return nil, problem
	}
	return samples, nil
}
