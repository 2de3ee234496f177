package usage

import (
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/histogram"
)

// Weights of one entry. The weight of a CPU sample does not depend on the request.
const cpuWeight, peakWeight = 0.1, 1

// ProfileShape contains the immutable histogram settings that merged profiles must share.
type ProfileShape struct {
	cpu, memory           *histogram.Scheme
	cpuDecay, memoryDecay *histogram.Decay
}

// NewProfileShape returns a shape with half-lives of CPU samples and memory peaks; 0: no decay.
func NewProfileShape(cpuHalfLife, memoryHalfLife time.Duration) ProfileShape {
	return ProfileShape{histogram.CPUScheme(), histogram.MemoryScheme(), histogram.NewDecay(cpuHalfLife), histogram.NewDecay(memoryHalfLife)}
}

// WithoutCPUDecay suits callers that only need the times and count of CPU samples.
func (s ProfileShape) WithoutCPUDecay() ProfileShape {
	s.cpuDecay = histogram.NewDecay(0)
	return s
}

// Profile is the usage history of a container, or of several merged. Create it with NewProfile.
type Profile struct {
	CPU    histogram.Histogram // cores, one entry per sample
	Memory histogram.Histogram // bytes, one entry per peak

	first, last int64 // oldest and newest CPU sample, see histogram.Nanoseconds
	samples     int64 // number of CPU samples
}

// NewProfile returns an empty profile.
func NewProfile(shape ProfileShape) Profile {
	p := Profile{
		CPU:    histogram.New(shape.cpu, shape.cpuDecay),
		Memory: histogram.New(shape.memory, shape.memoryDecay),
	}
	p.Reset()
	return p
}

// Reset empties p but keeps its memory for reuse.
func (p *Profile) Reset() {
	p.CPU.Reset()
	p.Memory.Reset()
	p.first, p.last, p.samples = histogram.Never, histogram.Never, 0
}

// AddCPU records one sample of CPU usage, in cores.
func (p *Profile) AddCPU(cores float64, at time.Time) {
	instant := histogram.Nanoseconds(at)
	p.CPU.AddAt(cores, cpuWeight, instant)
	p.extend(instant)
	p.samples++
}

// AddPeak records one peak of memory usage, in bytes.
func (p *Profile) AddPeak(bytes float64, at time.Time) { p.Memory.Add(bytes, peakWeight, at) }

// RemovePeak reverses AddPeak with the same arguments.
func (p *Profile) RemovePeak(bytes float64, at time.Time) {
	p.Memory.Subtract(bytes, peakWeight, at)
}

// First returns the time of the oldest CPU sample, or zero if unknown.
func (p *Profile) First() time.Time { return histogram.Time(p.first) }

// Last returns the time of the newest CPU sample, or zero if unknown.
func (p *Profile) Last() time.Time { return histogram.Time(p.last) }

// Samples returns the number of CPU samples.
func (p *Profile) Samples() int64 { return p.samples }

// Empty reports whether there is no CPU sample, regardless of peaks, as in the reference
// recommender.
func (p *Profile) Empty() bool { return p.samples == 0 }

// Confidence returns the number of intervals that the CPU samples cover: the smaller of the time
// span and the number of samples at one per minute. It is 0 for one sample or unknown times. It
// also serves as confidence of memory peaks.
func (p *Profile) Confidence(interval time.Duration) float64 {
	span := p.Last().Sub(p.First())
	if p.first == histogram.Never || span <= 0 || p.samples <= 0 {
		return 0
	}
	return min(float64(span)/float64(interval), float64(p.samples)/interval.Minutes())
}

// MergeInto adds p to dst without modifying p. It panics if their shapes differ.
func (p *Profile) MergeInto(dst *Profile) {
	p.CPU.MergeInto(&dst.CPU)
	p.Memory.MergeInto(&dst.Memory)
	dst.extend(p.first)
	dst.extend(p.last)
	dst.samples += p.samples
}

func (p *Profile) extend(at int64) {
	if at == histogram.Never {
		return
	}
	if p.first == histogram.Never || at < p.first {
		p.first = at
	}
	p.last = max(p.last, at)
}

// ProfileImage is the checkpoint form of a profile.
type ProfileImage struct {
	CPU, Memory histogram.Image
	First, Last time.Time // oldest and newest CPU sample, zero if unknown
	Samples     int64     // number of CPU samples
}

// Image returns the checkpoint form of p.
func (p *Profile) Image() ProfileImage {
	return ProfileImage{CPU: p.CPU.Image(), Memory: p.Memory.Image(), First: p.First(), Last: p.Last(), Samples: p.samples}
}

// Load replaces the content of p with an image. It rejects a negative number of samples and
// everything that Histogram.Load rejects. The error lists all problems, and p is empty then.
func (p *Profile) Load(i ProfileImage) error {
	p.Reset()
	var problems []error
	if err := p.CPU.Load(i.CPU); err != nil {
		problems = append(problems, fmt.Errorf("CPU histogram: %w", err))
	}
	if err := p.Memory.Load(i.Memory); err != nil {
		problems = append(problems, fmt.Errorf("memory histogram: %w", err))
	}
	if i.Samples < 0 {
		problems = append(problems, fmt.Errorf("number of CPU samples %d: must not be negative", i.Samples))
	}
	if err := errors.Join(problems...); err != nil {
		p.Reset()
		return err
	}
	p.extend(histogram.Nanoseconds(i.First))
	p.extend(histogram.Nanoseconds(i.Last))
	p.samples = i.Samples
	return nil
}
