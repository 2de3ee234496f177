package trail

import (
	"math"
	"slices"
	"time"
)

// The ring of peaks: fourteen days in windows of six hours. A rhythm of a week
// fits in twice.
const (
	window = int64(6 * time.Hour)
	perDay = 4
	days   = 14
	ring   = perDay * days
)

// Peaks are the highest uses of memory in windows of six hours, and sums since
// the container was first seen.
//
//	peaks  [ .  .  #  #  #  #  #  #  .  . ]     by the number of the window, modulo the ring
//	                          ^ running
type Peaks struct {
	peaks   [ring]uint16 // coded; 0 = empty
	running int64        // number of the window that is open, since 1970

	first, last int64   // nanoseconds since 1970 of the samples; 0 = none
	highest     float64 // of all
	sum, weight float64 // of use by time, seconds
	value       float64 // of the last sample
}

// Observe takes a use in bytes at an instant. One older than the open window
// counts in it.
func (p *Peaks) Observe(at int64, bytes float64) {
	number := at / window
	if p.first == 0 {
		p.first, p.last, p.running = at, at, number
	}
	if number-p.running >= ring {
		clear(p.peaks[:])
		p.running = number
	}
	for p.running < number {
		p.running++
		p.peaks[p.running%ring] = 0
	}
	slot := &p.peaks[p.running%ring]
	*slot = max(*slot, encode(bytes))
	p.highest = max(p.highest, bytes)
	if held := min(at-p.last, longestHold); held > 0 {
		p.sum += p.value * float64(held) / 1e9
		p.weight += float64(held) / 1e9
	}
	p.last, p.value = max(p.last, at), bytes
}

// longestHold is how long a sample stands for at most when nothing follows.
const longestHold = int64(15 * time.Minute)

// Empty tells whether nothing was observed.
func (p *Peaks) Empty() bool { return p.first == 0 }

// Running returns the peak of the open window.
func (p *Peaks) Running() float64 { return decode(p.peaks[p.running%ring]) }

// Day returns the highest of the latest four windows.
func (p *Peaks) Day() float64 { return p.day(0) }

// day returns the peak of the block of four windows that ended a number of days
// ago, 0 if it is empty.
func (p *Peaks) day(ago int64) float64 {
	code := uint16(0)
	for i := range int64(perDay) {
		if number := p.running - ago*perDay - i; number >= 0 {
			code = max(code, p.peaks[number%ring])
		}
	}
	return decode(code)
}

// Daily returns the peaks of the days of which something is known, the latest
// first. Days are counted back from the open window.
func (p *Peaks) Daily() []float64 {
	daily := make([]float64, 0, days)
	for ago := range int64(days) {
		if peak := p.day(ago); peak > 0 {
			daily = append(daily, peak)
		}
	}
	return daily
}

// Base returns the second-largest of the daily peaks, so that one outlier is
// forgiven; with fewer than four days the largest.
func Base(daily []float64) float64 {
	if len(daily) == 0 {
		return 0
	}
	ordered := slices.Sorted(slices.Values(daily))
	if len(ordered) < 4 {
		return ordered[len(ordered)-1]
	}
	return ordered[len(ordered)-2]
}

// unsure is the volatility that is assumed of a container with one day.
const unsure = 0.3

// Volatility returns the standard deviation of the logarithms of the daily peaks;
// with less than two it is assumed, and 0 in the very first window.
func (p *Peaks) Volatility(daily []float64) float64 {
	switch {
	case p.first/window == p.running:
		return 0
	case len(daily) < 2:
		return unsure
	}
	mean, sum := 0.0, 0.0
	for _, d := range daily {
		mean += math.Log(d) / float64(len(daily))
	}
	for _, d := range daily {
		sum += (math.Log(d) - mean) * (math.Log(d) - mean)
	}
	return math.Sqrt(sum / float64(len(daily)-1))
}

// Restless returns how far the highest use is above the mean by time up to an
// instant, as a fraction of the mean.
func (p *Peaks) Restless(now int64) float64 {
	held := float64(min(max(now-p.last, 0), longestHold)) / 1e9
	sum, weight := p.sum+p.value*held, p.weight+held
	if weight == 0 || sum == 0 {
		return 0
	}
	return max(p.highest/(sum/weight)-1, 0)
}

// Age returns the time from the first sample to an instant.
func (p *Peaks) Age(now int64) time.Duration { return time.Duration(max(now-p.first, 0)) }

// step is the ratio of two neighbouring codes; with it the largest code stands
// for more bytes than there are.
const step = 1.001

var logStep = math.Log(step)

// encode rounds an amount up to a power of step. The smallest is 1.
func encode(amount float64) uint16 {
	if amount < 1 {
		return 1
	}
	return uint16(min(math.Ceil(math.Log(amount)/logStep-1e-6)+1, math.MaxUint16))
}

// decode is the inverse of encode, and 0 for an empty one.
func decode(code uint16) float64 {
	if code == 0 {
		return 0
	}
	return math.Exp(float64(code-1) * logStep)
}
