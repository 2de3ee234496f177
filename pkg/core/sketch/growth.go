package sketch

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Growth is a rise of memory that has gone on for days, as that of a leak.
type Growth struct {
	From, To float64 // bytes: highest use of its first and of its last day
	Days     int     // from the first to the last one; 0 = there is no growth
	PerDay   float64 // bytes: median of the rises between two of these days, each divided by the days between
}

// String says what has grown, for people.
func (g Growth) String() string {
	return fmt.Sprintf("memory grew by %s a day over %d days, to %s", Bytes(g.PerDay, 2), g.Days, Bytes(g.To, 3))
}

// Reaches returns after how many days, begun ones counted, a growth that goes on reaches a
// number of bytes: 1 also where it did already.
func (g Growth) Reaches(limit float64) int {
	return int(max(math.Ceil(min((limit-g.To)/g.PerDay, math.MaxInt32)), 1))
}

// Bytes prints a number of bytes in the largest unit up to GiB of which there is one, with so many digits at least 1.
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
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(bytes/unit, 'g', digits, 64), 64) // it was just written
	return strconv.FormatFloat(rounded, 'f', -1, 64) + " " + name
}

// What only varies hardly ever rises from each day to the next in a week, or between nine of
// ten pairs of twelve days. In either case it must rise by a tenth in six days, and
//   - in the second half by half as much as in the first one at least: a cache that fills does not;
//   - between no two days by more than half of it: a new version that needs more does;
//   - a tenth above all days before that are kept: a rhythm of a week does not.
const (
	shortSpan, longSpan = 7, 12 // days
	fallsOfLongSpan     = 6     // of 66 pairs
	grown               = 0.10
	half                = 0.5
)

// Growth returns how memory grows from day to day, the zero Growth if it does not. It looks at
// the highest use of each day, so a rhythm of a day changes nothing, nor do restarts after
// which as much is used as before. Growth that was found lasts until the highest use of two
// days is not above that of the two days before. It changes when a window of six hours ends.
func (p *DailyPeaks) Growth() Growth {
	last := p.running - 1 // what is open may still rise
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

// twoDays returns the highest peak of two days up to a window, coded, 0 if one is empty.
func (p *DailyPeaks) twoDays(end int64) uint16 {
	late, early := p.coded(end), p.coded(end-perDay)
	if late == 0 || early == 0 {
		return 0
	}
	return max(late, early)
}

// growth looks for growth in days of which the last one ends with the window end, and returns
// what it has come to with the window last.
func (p *DailyPeaks) growth(last, end int64) (Growth, bool) {
	span := shortSpan
	if !p.rises(end, shortSpan, 0) {
		if span = longSpan; !p.rises(end, longSpan, fallsOfLongSpan) {
			return Growth{}, false
		}
	}
	first := end - int64(span-1)*perDay
	return Growth{
		From: scales[ram].decode(p.coded(first)), To: scales[ram].decode(p.coded(last)),
		Days: int(last-first) / perDay, PerDay: p.slope(end, span),
	}, true
}

// rises reports whether the peaks of a span of days, the last of which ends with a window,
// grow: of all pairs of days at most a number do not.
func (p *DailyPeaks) rises(end int64, span, falls int) bool {
	begin := end - int64(span)*perDay // the window before
	if begin < p.first/window-1 || begin < p.running-slotsKept {
		return false
	}
	first, last := scales[ram].decode(p.coded(begin+perDay)), scales[ram].decode(p.coded(end))
	if first == 0 || last < first*(1+grown) { // nearly always
		return false
	}
	var peaks [longSpan]float64
	for i := range span {
		peaks[i] = scales[ram].decode(p.coded(begin + int64(i+1)*perDay))
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
		before = max(before, p.coded(number))
	}
	return falls >= 0 && last >= scales[ram].decode(before)*(1+grown) && p.slope(end, span)*(shortSpan-1) >= grown*first
}

// slope returns the median of the rises a day between two days of a span.
func (p *DailyPeaks) slope(end int64, span int) float64 {
	var room [longSpan * (longSpan - 1) / 2]float64
	slopes := room[:0]
	for late := range span {
		for early := late + 1; early < span; early++ { // counted back from the end
			rise := scales[ram].decode(p.coded(end-int64(late)*perDay)) - scales[ram].decode(p.coded(end-int64(early)*perDay))
			slopes = append(slopes, rise/float64(early-late))
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2]
}
