package replay

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/source/trace"
)

// Minute is the sampling interval of the backtester, and by default of a recommender.
const Minute = time.Minute

// Sample is the usage from a time until the next sample.
type Sample struct {
	After     time.Duration // since the first sample
	Nanocores int64         // -1: not recorded
	Bytes     int64         // -1: not recorded
}

// Recording is the recorded usage of one container.
type Recording struct {
	Name    string // of the workload, the container is "app"
	Samples []Sample
	Start   time.Time // of the first sample, whole seconds

	CPURequest, MemoryRequest string // quantities, recorded or chosen, at the start of a replay

	step time.Duration // see Step, 0: not computed yet
}

// Container is the name of every recorded container.
const Container = "app"

// Step is the usual time between two samples.
func (r *Recording) Step() time.Duration {
	if r.step > 0 {
		return r.step
	}
	steps := make([]time.Duration, len(r.Samples)-1)
	for i := range steps {
		steps[i] = r.Samples[i+1].After - r.Samples[i].After
	}
	slices.Sort(steps)
	r.step = steps[len(steps)/2]
	return r.step
}

// Length is the time from the first sample to the end of the last one, which lasts one step.
func (r *Recording) Length() time.Duration {
	return r.Samples[len(r.Samples)-1].After + r.Step()
}

// EndAt places the recording so that it ends at most a minute before end and begins whole minutes
// before it. An observer that samples each minute then sees the first sample when it is made, as
// the backtester does.
func (r *Recording) EndAt(end time.Time) { r.Start = end.Add(-minutes(r.Length())) }

func minutes(d time.Duration) time.Duration { return (d + Minute - 1).Truncate(Minute) }

// At returns the sample visible at a time, or false if there is none. A sample is visible until the
// next one, but for at most three steps.
func (r *Recording) At(at time.Time) (Sample, bool) {
	after := at.Sub(r.Start)
	i, exact := slices.BinarySearchFunc(r.Samples, after, func(s Sample, d time.Duration) int { return int(s.After - d) })
	if !exact {
		i--
	}
	if i < 0 {
		return Sample{}, false
	}
	step := r.Step()
	hold := step
	if i+1 < len(r.Samples) {
		hold = min(r.Samples[i+1].After-r.Samples[i].After, 3*step)
	}
	return r.Samples[i], after < r.Samples[i].After+hold
}

// Cut shortens a recording to its first samples.
func (r *Recording) Cut(samples int) *Recording {
	r.Samples = r.Samples[:min(samples, len(r.Samples))]
	return r
}

// Seconds reads recordings of a process with a sample per second, concatenates them, and treats
// each second as a minute: 24 minutes become a day.
func Seconds(paths ...string) (*Recording, error) {
	r := &Recording{}
	for _, path := range paths {
		samples, err := trace.ReadProcess(path)
		if err != nil {
			return nil, err
		}
		for _, s := range samples {
			r.Samples = append(r.Samples, Sample{time.Duration(len(r.Samples)) * Minute, nanocores(1000 * s.CPU), int64(s.Memory)})
		}
	}
	return r, nil
}

// Containers reads containers from a file of the shared recordings, up to a maximum number. Their
// names are the given name and a number.
func Containers(path, name string, maxContainers int) ([]*Recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []*Recording
	for recorded, problem := range trace.Read(file, path, trace.Options{}) {
		if problem != nil && !problem.Warning {
			return nil, problem
		}
		r := &Recording{Name: fmt.Sprintf("%s-%d", name, len(all)), CPURequest: "500m", MemoryRequest: "512Mi"}
		for i, at := range recorded.At {
			s := Sample{time.Duration(at - recorded.At[0]).Round(time.Second), nanocores(recorded.Use[resources.CPU][i]), -1}
			if memory := recorded.Use[resources.Memory][i]; !math.IsNaN(memory) {
				s.Bytes = int64(memory)
			}
			r.Samples = append(r.Samples, s)
		}
		if all = append(all, r); len(all) == maxContainers {
			break
		}
	}
	return all, nil
}

// nanocores rounds, because a float of 0.001 cores is not exactly one millicore.
func nanocores(millicores float64) int64 {
	if math.IsNaN(millicores) {
		return -1
	}
	return int64(math.Round(millicores * 1e6))
}
