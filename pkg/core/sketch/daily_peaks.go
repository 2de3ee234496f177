package sketch

import (
	"math"
	"time"
)

// The ring keeps 14 days in 6-hour windows, including the open one. A weekly rhythm fits in twice,
// because the oldest window stays in peakTwoWeeksAgo.
const (
	window    = int64(6 * time.Hour)
	perDay    = 4
	days      = 14
	slotsKept = perDay * days
)

// DailyPeaks holds the peak memory usage of each 6-hour window, and totals since the first sample.
//
//	peaks  [ .  .  #  #  #  #  #  #  .  . ]     by window number, modulo the ring size
//	                          ^ running
type DailyPeaks struct {
	peaks   [slotsKept]uint16 // memory scale codes, 0 = empty
	running int64             // number of the open window since 1970

	first           int64   // first sample in ns since 1970, 0 = none
	last            uint32  // last sample in minutes since 1970, 0 = unknown
	idleHours       uint16  // full hours of gaps, without the first hour of each gap
	peakBeforePause uint16  // code of the peak before the last long pause, 0 = none
	highest         float32 // peak of all time
	kills           uint8   // OOM kills in the open window, see addKill
	peakTwoWeeksAgo uint16  // code of the window 14 days before the open one, 0 = none
	sum             float64
	samples         float64
}

// A gap between samples adds at most one hour to the age of a container. The rest is idle time, so
// that a job of a few minutes a day is not mature after one day.
const gapAllowance, minute = int64(time.Hour), int64(time.Minute)

func (p *DailyPeaks) addGap(length int64) {
	p.idleHours = uint16(min(int64(p.idleHours)+max(length/gapAllowance-1, 0), math.MaxUint16))
}

// Observe adds a sample in bytes. A sample older than the open window counts in the open window.
func (p *DailyPeaks) Observe(at int64, bytes float64) {
	p.addPeak(at, bytes)
	p.sum, p.samples = p.sum+bytes, p.samples+1
}

// addPeak adds no sample, because the estimate after an OOM kill must not change the mean.
func (p *DailyPeaks) addPeak(at int64, bytes float64) {
	if p.first == 0 {
		p.first, p.running = at, at/window
	}
	if p.last != 0 {
		p.addGap(at - int64(p.last)*minute)
	}
	p.last = max(p.last, uint32(at/minute))
	if at/window-p.running >= slotsKept {
		p.peakBeforePause = scales[ram].encode(p.Highest(days))
	}
	if at/window > p.running {
		p.kills, p.peakTwoWeeksAgo = 0, p.windowPeak(at/window-slotsKept)
	}
	advanceRing(&p.running, at/window, p.peaks[:])
	slot := &p.peaks[p.running%slotsKept]
	*slot = max(*slot, scales[ram].encode(bytes))
	p.highest = max(p.highest, float32(bytes))
}

// windowPeak returns the peak code of a window by number, 0 if empty or unknown.
func (p *DailyPeaks) windowPeak(number int64) uint16 {
	switch {
	case number < 0 || number > p.running || number < p.running-slotsKept:
		return 0
	case number == p.running-slotsKept:
		return p.peakTwoWeeksAgo
	}
	return p.peaks[number%slotsKept]
}

// Empty reports whether there are no samples.
func (p *DailyPeaks) Empty() bool { return p.first == 0 }

// CurrentPeak returns the peak of the open window.
func (p *DailyPeaks) CurrentPeak() float64 { return scales[ram].decode(p.peaks[p.running%slotsKept]) }

// LastDayPeak returns the peak of the latest four windows.
func (p *DailyPeaks) LastDayPeak() float64 { return p.dayPeak(0) }

func (p *DailyPeaks) dayPeak(ago int64) float64 {
	return scales[ram].decode(p.blockPeak(p.running - ago*perDay))
}

// blockPeak returns the peak code of the four windows up to end, 0 if empty or expired.
func (p *DailyPeaks) blockPeak(end int64) uint16 {
	code := uint16(0)
	for number := end; number > end-perDay; number-- {
		if number >= 0 && number > p.running-slotsKept {
			code = max(code, p.peaks[number%slotsKept])
		}
	}
	return code
}

// Highest returns the highest peak of the last days, at most 14, counted back from the open window.
func (p *DailyPeaks) Highest(dayCount int64) float64 {
	highest := 0.0
	for ago := range min(dayCount, days) {
		highest = max(highest, p.dayPeak(ago))
	}
	return highest
}

// minDailyPeaks are enough without the peak from before a long pause.
const minDailyPeaks = 4

// Daily returns the peaks of the days with samples, latest first. With fewer than four it adds the
// peak from before a pause of two weeks or more, so that a monthly job does not start small. A
// second function fills the list, so that it can stay on the caller's stack.
func (p *DailyPeaks) Daily() []float64 { return p.daily(make([]float64, 0, maxPeaks)) }

const maxPeaks = days + 1

func (p *DailyPeaks) daily(daily []float64) []float64 {
	for ago := range int64(days) {
		if peak := p.dayPeak(ago); peak > 0 {
			daily = append(daily, peak)
		}
	}
	if p.peakBeforePause != 0 && len(daily) < minDailyPeaks {
		daily = append(daily, scales[ram].decode(p.peakBeforePause))
	}
	return daily
}

// Weekly returns Daily and the peak of the window two weeks before the open one. A weekly event
// then appears twice when it begins, although the open window has replaced one occurrence.
func (p *DailyPeaks) Weekly() []float64 { return p.weekly(make([]float64, 0, maxPeaks)) }

func (p *DailyPeaks) weekly(daily []float64) []float64 {
	daily = p.daily(daily)
	if p.peakTwoWeeksAgo != 0 && len(daily) >= minDailyPeaks {
		daily = append(daily, scales[ram].decode(p.peakTwoWeeksAgo))
	}
	return daily
}

// Base returns the second-largest daily peak, which tolerates one outlier. With fewer than four
// days it returns the largest.
func Base(daily []float64) float64 {
	largest, second := 0.0, 0.0
	for _, peak := range daily {
		largest, second = max(largest, peak), max(second, min(largest, peak))
	}
	if len(daily) < minDailyPeaks {
		return largest
	}
	return second
}

const assumedVolatility = 0.3

// Volatility returns the standard deviation of the logarithms of the daily peaks. It is 0 in the
// first window, and an assumed value with fewer than two peaks.
func (p *DailyPeaks) Volatility(daily []float64) float64 {
	switch {
	case p.first/window == p.running:
		return 0
	case len(daily) < 2:
		return assumedVolatility
	}
	mean, sum := 0.0, 0.0
	logs := make([]float64, 0, maxPeaks)
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

// ExcessOverMean returns how far the highest usage exceeds the mean, as a fraction of the mean.
func (p *DailyPeaks) ExcessOverMean() float64 {
	if p.sum == 0 {
		return 0
	}
	return max(float64(p.highest)/(p.sum/p.samples)-1, 0)
}

// Age returns the time since the first sample without idle hours. A gap adds less than two hours.
func (p *DailyPeaks) Age(now int64) time.Duration {
	return time.Duration(max(now-p.first-int64(p.idleHours)*gapAllowance, 0))
}

func (p *DailyPeaks) merge(o *DailyPeaks) {
	if o.first == 0 {
		return
	}
	switch apart := o.running - p.running; {
	case p.first == 0:
		p.peakBeforePause = o.peakBeforePause
	case apart >= slotsKept:
		p.peakBeforePause = scales[ram].encode(p.Highest(days))
	case -apart >= slotsKept:
		p.peakBeforePause = scales[ram].encode(o.Highest(days))
	default:
		p.peakBeforePause = max(p.peakBeforePause, o.peakBeforePause)
	}
	switch {
	case o.running > p.running:
		p.kills = o.kills
	case o.running == p.running:
		p.kills = max(p.kills, o.kills)
	}
	oldest := max(p.running, o.running) - slotsKept
	p.peakTwoWeeksAgo = max(p.windowPeak(oldest), o.windowPeak(oldest))
	mergeRings(&p.running, p.peaks[:], o.running, o.peaks[:])
	p.mergePauses(o)
	if p.first == 0 || o.first < p.first {
		p.first = o.first
	}
	p.highest = max(p.highest, o.highest)
	p.sum, p.samples = p.sum+o.sum, p.samples+o.samples
}

// mergePauses merges idle hours. Where both cover the same time the smaller count applies, because
// the other has samples in the gap.
func (p *DailyPeaks) mergePauses(o *DailyPeaks) {
	early, late := *p, o
	if p.first == 0 || o.first < p.first {
		early, late = *o, p
	}
	begins, ends := late.first, int64(early.last)*minute
	last := max(p.last, o.last)
	switch {
	case late.first == 0:
		p.idleHours = early.idleHours
	case early.last != 0 && ends < begins:
		p.idleHours = uint16(min(int64(early.idleHours)+int64(late.idleHours), math.MaxUint16))
		p.addGap(begins - ends)
	default:
		p.idleHours = min(early.idleHours, late.idleHours)
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
	w.Int(int64(p.idleHours))
	w.Int(int64(p.peakBeforePause))
	w.Int(int64(p.kills))
	if p.peakTwoWeeksAgo != 0 {
		w.Int(int64(p.peakTwoWeeksAgo))
	}
}

func (p *DailyPeaks) read(r *imageReader) {
	p.running = r.Within(0, maxSlotNumber)
	r.Scaled(&scales[ram], p.peaks[:])
	p.first = r.Within(0, math.MaxInt64)
	p.highest, p.sum, p.samples = float32(r.Float()), r.Float(), r.Float()
	if p.samples == 0 {
		p.sum = 0
	}
	if !r.Empty() { // older images have no pauses
		p.last, p.idleHours = uint32(r.Within(0, math.MaxUint32)), uint16(r.Within(0, math.MaxUint16))
		p.peakBeforePause, p.kills = r.Code(&scales[ram]), uint8(r.Within(0, maxKills))
	}
	if !r.Empty() {
		p.peakTwoWeeksAgo = r.Code(&scales[ram])
	}
}
