package usage

import (
	"iter"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// window is the time in which a container's highest memory use counts as one
// peak in its series. Peaks are entered at the end of the window, which may be
// a whole interval ahead. Instants are nanoseconds since 1970.
type window struct {
	last  int64            // last memory sample or kill; none = no window yet
	used  int64            // last memory sample; none = none yet
	end   int64            // end of the window
	usage resources.Amount // highest use seen; none = none yet
	oom   resources.Amount // highest need after an OOM; none = none yet
}

func newWindow() window { return window{last: none, used: none, usage: none, oom: none} }

// peak returns the peak that is in the series, or none.
func (w *window) peak() resources.Amount { return max(w.usage, w.oom) }

func (w *window) forgetPeak() { w.usage, w.oom = none, none }

// Window is the memory window of one container, as it is kept over a restart.
type Window struct {
	End   time.Time        // zero = there is no open window, only a kill to remember
	Usage resources.Amount // bytes: highest use seen; negative = none yet
	OOM   resources.Amount // bytes: highest need after an OOM; negative = none yet
	Kill  time.Time        // of the latest kill that had an ID; zero = none within an interval
	Kills []uint64         // hashes of the IDs of the last such kills, the last one first; empty = not known
}

// Peak returns the peak of the window in bytes, negative if it has none.
func (w Window) Peak() resources.Amount { return max(w.Usage, w.OOM) }

// Windows yields what must be kept over a restart of the containers that feed
// series: windows that are open at now and have a peak, and last kills. The order
// is not defined.
func (s *Store) Windows(now time.Time, series ...Series) iter.Seq2[ContainerKey, Window] {
	return func(yield func(ContainerKey, Window) bool) {
		for _, i := range series {
			interval := s.rules(s.series.At(i)).Interval
			for slot := s.series.At(i).first; slot != none; slot = s.containers.At(slot).next {
				c, w := s.containers.At(slot), Window{Usage: none, OOM: none}
				if end := time.Unix(0, c.window.end).UTC(); c.window.peak() != none && now.Before(end) {
					w = Window{End: end, Usage: c.window.usage, OOM: c.window.oom}
				}
				if c.kill != nil && now.Sub(time.Unix(0, c.kill.at)) <= interval {
					w.Kill, w.Kills = time.Unix(0, c.kill.at).UTC(), c.kill.hashes()
				}
				if (!w.End.IsZero() || !w.Kill.IsZero()) && !yield(s.key(c), w) {
					return
				}
			}
		}
	}
}

// Resume gives a tracked container back the window that it had before a restart,
// and its series the peak; from then on the kills of w.Kills are duplicates or,
// where it is empty, those that are not newer than w.Kill. It reports whether it took the peak or, if w has none, the kill.
// The peak is not taken if the container has a window already, or if w.End is no
// time; nothing is if the container is not tracked.
func (s *Store) Resume(c ContainerKey, w Window) bool {
	slot, known := s.slot(c)
	if !known {
		return false
	}
	resumed := s.resumeKill(slot, w)
	end, inRange := instant(w.End)
	peak := max(w.Usage, w.OOM)
	if peak < 0 {
		return resumed
	}
	if !inRange || s.containers.At(slot).window.last != none {
		return false
	}
	h := s.series.At(s.containers.At(slot).series)
	s.containers.At(slot).window = window{
		last:  0, // unknown. When the window began is, too: its length may have been another
		used:  0,
		end:   end,
		usage: max(w.Usage, none),
		oom:   max(w.OOM, none),
	}
	h.version++
	h.profile.AddPeak(float64(peak), w.End)
	return true
}

func (s *Store) resumeKill(slot int32, w Window) bool {
	at, inRange := instant(w.Kill)
	c := s.containers.At(slot)
	if !inRange || c.kill != nil && c.kill.at >= at {
		return false
	}
	c.kill = &kill{at: at, need: max(w.OOM, none)}
	copy(c.kill.recent[:], w.Kills)
	c.kill.timed = c.kill.recent[0] == 0
	return true
}

// RemovePeaks takes out of dst, into which series were merged, the peaks of
// windows that are open at now. A checkpoint is written without them, so that a
// program that restarts within a window does not count it twice.
func (s *Store) RemovePeaks(dst *Profile, now time.Time, series ...Series) {
	for _, i := range series {
		for slot := s.series.At(i).first; slot != none; slot = s.containers.At(slot).next {
			w := &s.containers.At(slot).window
			if end := time.Unix(0, w.end); w.peak() != none && now.Before(end) {
				dst.RemovePeak(float64(w.peak()), end)
			}
		}
	}
}

// Peak returns the peak of a container's memory window in bytes and the end of
// the window, or false if it has none.
func (s *Store) Peak(c ContainerKey) (peak resources.Amount, end time.Time, ok bool) {
	slot, known := s.slot(c)
	if !known || s.containers.At(slot).window.peak() == none {
		return 0, time.Time{}, false
	}
	w := &s.containers.At(slot).window
	return w.peak(), time.Unix(0, w.end).UTC(), true
}
