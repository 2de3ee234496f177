package usage

import (
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/histogram"
)

// Weights of one entry. That of a CPU sample does not depend on the request.
const cpuWeight, peakWeight = 0.1, 1

// ProfileShape is what profiles must have in common to be merged. It does not change once made; make one and share it.
type ProfileShape struct {
	cpu, memory           *histogram.Scheme
	cpuDecay, memoryDecay *histogram.Decay
}

// NewProfileShape returns the shape of profiles in which CPU samples and memory peaks
// lose half of their influence in the given times (0 = they never lose any).
func NewProfileShape(cpuHalfLife, memoryHalfLife time.Duration) ProfileShape {
	return ProfileShape{histogram.CPUScheme(), histogram.MemoryScheme(), histogram.NewDecay(cpuHalfLife), histogram.NewDecay(memoryHalfLife)}
}

// Timeless returns the shape of profiles in which CPU samples never lose influence:
// for who asks only when they were taken, and how many there are.
func (s ProfileShape) Timeless() ProfileShape {
	s.cpuDecay = histogram.NewDecay(0)
	return s
}

// Profile is the usage history of a container, or of several merged. Make it with NewProfile.
type Profile struct {
	CPU    histogram.Histogram // cores, one entry a sample
	Memory histogram.Histogram // bytes, one entry a peak

	first, last int64 // when the oldest and newest CPU sample was taken, see histogram.Nanoseconds
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

// Reset empties p but keeps its memory, so that p can serve again as a scratch.
func (p *Profile) Reset() {
	p.CPU.Reset()
	p.Memory.Reset()
	p.first, p.last, p.samples = histogram.Never, histogram.Never, 0
}

// AddCPU records one sample of CPU use, in cores.
func (p *Profile) AddCPU(cores float64, at time.Time) {
	instant := histogram.Nanoseconds(at)
	p.CPU.AddAt(cores, cpuWeight, instant)
	p.cover(instant)
	p.samples++
}

// AddPeak records one peak of memory use, in bytes.
func (p *Profile) AddPeak(bytes float64, at time.Time) { p.Memory.Add(bytes, peakWeight, at) }

// RemovePeak takes back what AddPeak recorded with the same arguments.
func (p *Profile) RemovePeak(bytes float64, at time.Time) {
	p.Memory.Subtract(bytes, peakWeight, at)
}

// First returns when the oldest CPU sample was taken, the zero time if unknown.
func (p *Profile) First() time.Time { return histogram.Time(p.first) }

// Last returns when the newest CPU sample was taken, the zero time if unknown.
func (p *Profile) Last() time.Time { return histogram.Time(p.last) }

// Samples returns the number of CPU samples.
func (p *Profile) Samples() int64 { return p.samples }

// Empty reports whether there is no CPU sample. Memory peaks do not count, as in the reference recommender.
func (p *Profile) Empty() bool { return p.samples == 0 }

// Confidence returns how many intervals the CPU samples cover, counted both by the time from first to last and by their
// number at one a minute; the lesser wins. It is 0 for one sample, or if it is unknown when they were taken. It stands
// for the trust in memory peaks as well.
func (p *Profile) Confidence(interval time.Duration) float64 {
	span := p.Last().Sub(p.First())
	if p.first == histogram.Never || span <= 0 || p.samples <= 0 {
		return 0
	}
	return min(float64(span)/float64(interval), float64(p.samples)/interval.Minutes())
}

// MergeInto adds p to dst and leaves p as it is. It panics if the two were made with different shapes.
func (p *Profile) MergeInto(dst *Profile) {
	p.CPU.MergeInto(&dst.CPU)
	p.Memory.MergeInto(&dst.Memory)
	dst.cover(p.first)
	dst.cover(p.last)
	dst.samples += p.samples
}

// cover extends first and last to an instant, if it is known.
func (p *Profile) cover(at int64) {
	if at == histogram.Never {
		return
	}
	if p.first == histogram.Never || at < p.first {
		p.first = at
	}
	p.last = max(p.last, at)
}

// ProfileImage is a profile as a checkpoint stores it.
type ProfileImage struct {
	CPU, Memory histogram.Image
	First, Last time.Time // when the oldest and newest CPU sample was taken; the zero time if unknown
	Samples     int64     // number of CPU samples
}

// Image returns the stored form of p.
func (p *Profile) Image() ProfileImage {
	return ProfileImage{CPU: p.CPU.Image(), Memory: p.Memory.Image(), First: p.First(), Last: p.Last(), Samples: p.samples}
}

// Load replaces the content of p by an image. It refuses a negative number of samples and what Histogram.Load refuses;
// all problems are named, and p is left empty.
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
	p.cover(histogram.Nanoseconds(i.First))
	p.cover(histogram.Nanoseconds(i.Last))
	p.samples = i.Samples
	return nil
}
