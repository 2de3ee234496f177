package replay

import (
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Recording is the recorded usage of one container, with its resources.
type Recording struct {
	Dataset, Workload, Container string
	Class                        Class // empty = unknown

	At  []int64                    // nanoseconds since 1970, strictly ascending
	Use [resources.Kinds][]float64 // millicores and bytes from each instant on, NaN = not recorded

	// Waiting is the share of time, 0 to 1, for which work waited for CPU. NaN, nil = not recorded.
	Waiting []float64

	Requests, Limits resources.List // as recorded, absent = unknown
}

// gapSteps is the maximum duration of a sample in median steps.
const gapSteps = 3

// Step returns the median time between two samples, 0 if there are fewer than two.
func (r *Recording) Step() time.Duration {
	if len(r.At) < 2 {
		return 0
	}
	steps := make([]int64, len(r.At)-1)
	for i := range steps {
		steps[i] = r.At[i+1] - r.At[i]
	}
	slices.Sort(steps)
	return time.Duration(steps[len(steps)/2])
}

// Has reports whether there is usage of a resource.
func (r *Recording) Has(k resources.Kind) bool {
	return slices.ContainsFunc(r.Use[k], func(v float64) bool { return !math.IsNaN(v) })
}

// Span returns the time from the first sample to the end of the last one, which lasts one step.
func (r *Recording) Span() time.Duration {
	if len(r.At) == 0 {
		return 0
	}
	return time.Duration(r.At[len(r.At)-1]-r.At[0]) + r.Step()
}

// SampleDurations returns the duration of each sample in nanoseconds: until the next one, at most
// three median steps. The last one lasts one step, and missing ones 0.
func (r *Recording) SampleDurations(k resources.Kind) []int64 {
	step := int64(r.Step())
	most := gapSteps * step
	holds := make([]int64, len(r.At))
	next, known := int64(0), false
	for i := len(r.At) - 1; i >= 0; i-- {
		if math.IsNaN(r.Use[k][i]) {
			continue
		}
		holds[i] = step
		if known {
			holds[i] = min(next-r.At[i], most)
		}
		next, known = r.At[i], true
	}
	return holds
}

// Clipped reports whether a limit seems to have capped the recorded usage: more than 5% of the time
// is within 2% of the maximum.
func (r *Recording) Clipped(k resources.Kind) bool {
	most, near, total := 0.0, int64(0), int64(0)
	for _, v := range r.Use[k] {
		if v > most {
			most = v
		}
	}
	for i, hold := range r.SampleDurations(k) {
		total += hold
		if r.Use[k][i] >= 0.98*most {
			near += hold
		}
	}
	return most > 0 && float64(near) > 0.05*float64(total)
}
