package sketch

import (
	"math"
	"time"
)

// The ring of peaks: fourteen days in windows of six hours, the open one among them. A
// rhythm of a week fits in twice, with the window before all of them.
const (
	window    = int64(6 * time.Hour)
	perDay    = 4
	days      = 14
	slotsKept = perDay * days
)

// DailyPeaks are the highest uses of memory in windows of six hours, and sums since the container was first seen.
//
//	peaks  [ .  .  #  #  #  #  #  #  .  . ]     by the number of the window, modulo the ring
//	                          ^ running
type DailyPeaks struct {
	peaks   [slotsKept]uint16 // codes of the scale of memory; 0 = empty
	running int64             // number of the window that is open, since 1970

	first   int64   // nanoseconds since 1970 of the first sample; 0 = none
	last    uint32  // of the last one, minutes since 1970; 0 = not known
	idle    uint16  // whole hours of all gaps between samples, without the first hour of each
	before  uint16  // highest of the ring when a pause emptied it last, coded; 0 = none did
	highest float32 // of all
	kills   uint8   // in the open window, without those of a container that was kept small
	former  uint16  // peak of the window two weeks before the open one, coded; 0 = none, or not known
	sum     float64 // of all samples
	samples float64 // number of them
}

// A container is known for as long as it has samples. Of a gap between two samples an hour
// counts at most, and the rest is idle: a job that runs for some minutes a day gains an
// hour or so with each run, and is not taken for known after a day.
const pause, minute = int64(time.Hour), int64(time.Minute)

// addGap notes a time without samples, in nanoseconds.
func (p *DailyPeaks) addGap(length int64) {
	p.idle = uint16(min(int64(p.idle)+max(length/pause-1, 0), math.MaxUint16))
}

// Observe takes a use in bytes at an instant. One older than the open window counts in it.
func (p *DailyPeaks) Observe(at int64, bytes float64) {
	p.peak(at, bytes)
	p.sum, p.samples = p.sum+bytes, p.samples+1
}

// peak takes a peak. That of a container that was killed is no sample: nobody knows what it used.
func (p *DailyPeaks) peak(at int64, bytes float64) {
	if p.first == 0 {
		p.first, p.running = at, at/window
	}
	if p.last != 0 {
		p.addGap(at - int64(p.last)*minute)
	}
	p.last = max(p.last, uint32(at/minute))
	if at/window-p.running >= slotsKept {
		p.before = scales[ram].encode(p.Highest(days))
	}
	if at/window > p.running {
		p.kills, p.former = 0, p.of(at/window-slotsKept)
	}
	advanceRing(&p.running, at/window, p.peaks[:])
	slot := &p.peaks[p.running%slotsKept]
	*slot = max(*slot, scales[ram].encode(bytes))
	p.highest = max(p.highest, float32(bytes))
}

// of returns the peak of a window by its number, coded; 0 = none, or not known.
func (p *DailyPeaks) of(number int64) uint16 {
	switch {
	case number < 0 || number > p.running || number < p.running-slotsKept:
		return 0
	case number == p.running-slotsKept:
		return p.former
	}
	return p.peaks[number%slotsKept]
}

// Empty reports whether nothing was observed.
func (p *DailyPeaks) Empty() bool { return p.first == 0 }

// Running returns the peak of the open window.
func (p *DailyPeaks) Running() float64 { return scales[ram].decode(p.peaks[p.running%slotsKept]) }

// Day returns the highest of the latest four windows.
func (p *DailyPeaks) Day() float64 { return p.day(0) }

// day returns the peak of the block of four windows that ended a number of days ago, 0 if it is empty.
func (p *DailyPeaks) day(ago int64) float64 {
	return scales[ram].decode(p.coded(p.running - ago*perDay))
}

// coded returns the peak of the four windows up to one with a number, coded; 0 = they are empty, or no longer kept.
func (p *DailyPeaks) coded(end int64) uint16 {
	code := uint16(0)
	for number := end; number > end-perDay; number-- {
		if number >= 0 && number > p.running-slotsKept {
			code = max(code, p.peaks[number%slotsKept])
		}
	}
	return code
}

// Highest returns the highest peak of a number of days, up to fourteen, counted back from the open window.
func (p *DailyPeaks) Highest(among int64) float64 {
	highest := 0.0
	for ago := range min(among, days) {
		highest = max(highest, p.day(ago))
	}
	return highest
}

// enough is how many daily peaks say what a container needs, without what was before a long pause.
const enough = 4

// Daily returns the peaks of the days of which something is known, the latest first. Days are counted back from the
// open window. With few of them the last is what was known before a pause of two weeks or more: a job that runs once a
// month begins small each time.
//
// Daily and Weekly are made of a list and what fills it, so that the list of a caller who
// keeps it to himself takes no memory of the heap.
func (p *DailyPeaks) Daily() []float64 { return p.daily(make([]float64, 0, mostPeaks)) }

// mostPeaks is how many Weekly returns at most.
const mostPeaks = days + 1

func (p *DailyPeaks) daily(daily []float64) []float64 {
	for ago := range int64(days) {
		if peak := p.day(ago); peak > 0 {
			daily = append(daily, peak)
		}
	}
	if p.before != 0 && len(daily) < enough {
		daily = append(daily, scales[ram].decode(p.before))
	}
	return daily
}

// Weekly returns Daily and the peak of the window two weeks before the open one. So what happens once a week is there
// twice when it begins; without that window it would be once, as the open one takes its place.
func (p *DailyPeaks) Weekly() []float64 { return p.weekly(make([]float64, 0, mostPeaks)) }

func (p *DailyPeaks) weekly(daily []float64) []float64 {
	daily = p.daily(daily)
	if p.former != 0 && len(daily) >= enough {
		daily = append(daily, scales[ram].decode(p.former))
	}
	return daily
}

// Base returns the second-largest of the daily peaks, so that one outlier is
// forgiven; with fewer than four days the largest.
func Base(daily []float64) float64 {
	largest, second := 0.0, 0.0
	for _, peak := range daily {
		largest, second = max(largest, peak), max(second, min(largest, peak))
	}
	if len(daily) < enough {
		return largest
	}
	return second
}

// unsure is the volatility that is assumed of a container with one day.
const unsure = 0.3

// Volatility returns the standard deviation of the logarithms of the daily peaks;
// with less than two it is assumed, and 0 in the very first window.
func (p *DailyPeaks) Volatility(daily []float64) float64 {
	switch {
	case p.first/window == p.running:
		return 0
	case len(daily) < 2:
		return unsure
	}
	mean, sum := 0.0, 0.0
	logs := make([]float64, 0, mostPeaks)
	for _, d := range daily {
		logs = append(logs, math.Log(d))
	}
	for _, log := range logs {
		mean += log / float64(len(logs))
	}
	for _, log := range logs {
		sum += (log - mean) * (log - mean)
	}
	return math.Sqrt(sum / float64(len(daily)-1))
}

// Restless returns how far the highest use is above the mean, as a fraction of the mean.
func (p *DailyPeaks) Restless() float64 {
	if p.sum == 0 {
		return 0
	}
	return max(float64(p.highest)/(p.sum/p.samples)-1, 0)
}

// Age returns the time from the first sample to an instant, without the idle hours: of a gap less than two hours count.
func (p *DailyPeaks) Age(now int64) time.Duration {
	return time.Duration(max(now-p.first-int64(p.idle)*pause, 0))
}

func (p *DailyPeaks) merge(o *DailyPeaks) {
	if o.first == 0 {
		return
	}
	switch apart := o.running - p.running; {
	case p.first == 0:
		p.before = o.before
	case apart >= slotsKept:
		p.before = scales[ram].encode(p.Highest(days))
	case -apart >= slotsKept:
		p.before = scales[ram].encode(o.Highest(days))
	default:
		p.before = max(p.before, o.before)
	}
	switch {
	case o.running > p.running:
		p.kills = o.kills
	case o.running == p.running:
		p.kills = max(p.kills, o.kills)
	}
	oldest := max(p.running, o.running) - slotsKept
	p.former = max(p.of(oldest), o.of(oldest))
	mergeRings(&p.running, p.peaks[:], o.running, o.peaks[:])
	p.mergePauses(o)
	if p.first == 0 || o.first < p.first {
		p.first = o.first
	}
	p.highest = max(p.highest, o.highest)
	p.sum, p.samples = p.sum+o.sum, p.samples+o.samples
}

// mergePauses adds the idle hours of another one. Where both have samples of the same
// time, one that saw none then was not idle: the other did see some.
func (p *DailyPeaks) mergePauses(o *DailyPeaks) {
	early, late := *p, o
	if p.first == 0 || o.first < p.first {
		early, late = *o, p
	}
	begins, ends := late.first, int64(early.last)*minute
	last := max(p.last, o.last)
	switch {
	case late.first == 0:
		p.idle = early.idle
	case early.last != 0 && ends < begins:
		p.idle = uint16(min(int64(early.idle)+int64(late.idle), math.MaxUint16))
		p.addGap(begins - ends)
	default:
		p.idle = min(early.idle, late.idle)
	}
	p.last = last
}

func (p *DailyPeaks) write(w *imageWriter) {
	w.Int(p.running)
	w.Codes(p.peaks[:])
	w.Int(p.first)
	w.Float(float64(p.highest))
	w.Float(p.sum)
	w.Float(p.samples)
	w.Int(int64(p.last))
	w.Int(int64(p.idle))
	w.Int(int64(p.before))
	w.Int(int64(p.kills))
	if p.former != 0 {
		w.Int(int64(p.former))
	}
}

func (p *DailyPeaks) read(r *imageReader) {
	p.running = r.Within(0, mostNumber)
	r.Scaled(&scales[ram], p.peaks[:])
	p.first = r.Within(0, math.MaxInt64)
	p.highest, p.sum, p.samples = float32(r.Float()), r.Float(), r.Float()
	if p.samples == 0 {
		p.sum = 0
	}
	if !r.Empty() { // else it was written before pauses were known
		p.last, p.idle = uint32(r.Within(0, math.MaxUint32)), uint16(r.Within(0, math.MaxUint16))
		p.before, p.kills = r.Code(&scales[ram]), uint8(r.Within(0, mostKills))
	}
	if !r.Empty() {
		p.former = r.Code(&scales[ram])
	}
}
