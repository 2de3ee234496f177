package sketch

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Growth is a rise of memory over several days, typically a leak.
type Growth struct {
	From, To float64 // bytes: peak usage of the first and of the last day
	Days     int     // from the first to the last day, 0 = no growth
	PerDay   float64 // bytes: median of the daily rises between all pairs of days
}

// String describes the growth for events and status messages.
func (g Growth) String() string {
	return fmt.Sprintf("memory grew by %s a day over %d days, to %s", Bytes(g.PerDay, 2), g.Days, Bytes(g.To, 3))
}

// Reaches returns the started days until continued growth reaches a limit in bytes, at least 1.
func (g Growth) Reaches(limit float64) int {
	return int(max(math.Ceil(min((limit-g.To)/g.PerDay, math.MaxInt32)), 1))
}

// Bytes formats a number of bytes in the largest unit up to GiB in which it is at least 1.
func Bytes(bytes float64, digits int) string {
	unit, name := 1.0, "bytes"
	for _, u := range []struct {
		size float64
		name string
	}{{1 << 10, "KiB"}, {1 << 20, "MiB"}, {1 << 30, "GiB"}} {
		if bytes >= u.size {
			unit, name = u.size, u.name
		}
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(bytes/unit, 'g', digits, 64), 64) // cannot fail, it was just formatted
	return strconv.FormatFloat(rounded, 'f', -1, 64) + " " + name
}

// Varying memory rarely rises on each day of a week, or between nine of ten pairs of 12 days. In
// both cases it must rise by a tenth in 6 days, and
//   - rise in the second half by at least half as much as in the first, unlike a filling cache
//   - rise between no two days by more than half of the total, unlike a new version
//   - exceed all earlier days in the ring by a tenth, unlike a weekly rhythm
const (
	shortSpan, longSpan = 7, 12 // days
	fallsOfLongSpan     = 6     // of 66 pairs
	grown               = 0.10
	half                = 0.5
)

// Growth returns the memory growth from day to day, or the zero Growth. It compares daily peaks, so
// daily rhythms and restarts have no effect. Detected growth lasts until the peak of two days does
// not exceed the two days before. The result changes only when a 6-hour window ends.
func (p *DailyPeaks) Growth() Growth {
	last := p.running - 1 // the open window may still rise
	for end := last; end > last-slotsKept; end-- {
		if g, found := p.growth(last, end); found {
			return g
		}
		if recent, before := p.twoDays(end), p.twoDays(end-2*perDay); recent == 0 || before == 0 || recent <= before {
			break
		}
	}
	return Growth{}
}

func (p *DailyPeaks) twoDays(end int64) uint16 {
	late, early := p.blockPeak(end), p.blockPeak(end-perDay)
	if late == 0 || early == 0 {
		return 0
	}
	return max(late, early)
}

// growth returns the growth in the days up to the window end, and its extent up to the window last.
func (p *DailyPeaks) growth(last, end int64) (Growth, bool) {
	span := shortSpan
	if !p.rises(end, shortSpan, 0) {
		if span = longSpan; !p.rises(end, longSpan, fallsOfLongSpan) {
			return Growth{}, false
		}
	}
	first := end - int64(span-1)*perDay
	return Growth{
		From: scales[ram].decode(p.blockPeak(first)), To: scales[ram].decode(p.blockPeak(last)),
		Days: int(last-first) / perDay, PerDay: p.slope(end, span),
	}, true
}

// rises reports whether the daily peaks of a span up to the window end grow. At most falls pairs of
// days may not rise.
func (p *DailyPeaks) rises(end int64, span, falls int) bool {
	begin := end - int64(span)*perDay // the window before the span
	if begin < p.first/window-1 || begin < p.running-slotsKept {
		return false
	}
	first, last := scales[ram].decode(p.blockPeak(begin+perDay)), scales[ram].decode(p.blockPeak(end))
	if first == 0 || last < first*(1+grown) { // nearly always
		return false
	}
	var peaks [longSpan]float64
	for i := range span {
		peaks[i] = scales[ram].decode(p.blockPeak(begin + int64(i+1)*perDay))
	}
	if middle := peaks[span/2]; last-middle < half*(middle-first) {
		return false
	}
	for i, early := range peaks[:span] {
		for _, late := range peaks[i+1 : span] {
			if late <= early {
				falls--
			}
		}
		if i > 0 && early-peaks[i-1] > half*(last-first) {
			return false
		}
	}
	before := uint16(0)
	for number := begin; number > p.running-slotsKept; number -= perDay {
		before = max(before, p.blockPeak(number))
	}
	return falls >= 0 && last >= scales[ram].decode(before)*(1+grown) && p.slope(end, span)*(shortSpan-1) >= grown*first
}

// slope returns the median daily rise between all pairs of days in a span.
func (p *DailyPeaks) slope(end int64, span int) float64 {
	var room [longSpan * (longSpan - 1) / 2]float64
	slopes := room[:0]
	for late := range span {
		for early := late + 1; early < span; early++ { // counted back from the end
			rise := scales[ram].decode(p.blockPeak(end-int64(late)*perDay)) - scales[ram].decode(p.blockPeak(end-int64(early)*perDay))
			slopes = append(slopes, rise/float64(early-late))
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2]
}
