package usage

import (
	"iter"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/profile"
)

// window is the time in which a container's highest memory use counts as one
// peak in its series. Peaks are entered at the end of the window, which may be
// a whole interval ahead. Instants are nanoseconds since 1970.
type window struct {
	last  int64         // last memory sample; none = no window yet
	end   int64         // end of the window
	usage amount.Amount // highest use seen; none = none yet
	oom   amount.Amount // highest need after an OOM; none = none yet
}

func newWindow() window { return window{last: none, usage: none, oom: none} }

// peak returns the peak that is in the series, or none.
func (w *window) peak() amount.Amount { return max(w.usage, w.oom) }

func (w *window) forgetPeak() { w.usage, w.oom = none, none }

// Window is the memory window of one container, as it is kept over a restart.
type Window struct {
	End   time.Time
	Usage amount.Amount // bytes: highest use seen; negative = none yet
	OOM   amount.Amount // bytes: highest need after an OOM; negative = none yet
	Kill  time.Time     // last kill that was taken; zero = none
}

// Windows yields the windows of the containers that feed series and are open at
// now, with a peak. The order is not defined.
func (s *Store) Windows(now time.Time, series ...Series) iter.Seq2[ContainerKey, Window] {
	return func(yield func(ContainerKey, Window) bool) {
		for _, i := range series {
			for slot := s.series[i].first; slot != none; slot = s.containers[slot].next {
				c := &s.containers[slot]
				end := time.Unix(0, c.window.end).UTC()
				if c.window.peak() != none && now.Before(end) && !yield(c.key, Window{End: end, Usage: c.window.usage, OOM: c.window.oom}) {
					return
				}
			}
		}
	}
}

// Resume gives a tracked container back the window that it had before a restart,
// and its series the peak. It changes nothing, and reports false, if the
// container is not tracked, has a window already, or if w has no peak or an end
// that is no time.
func (s *Store) Resume(c ContainerKey, w Window) bool {
	slot, known := s.byContainerKey[c]
	end, inRange := instant(w.End)
	peak := max(w.Usage, w.OOM)
	if !known || !inRange || peak < 0 || s.containers[slot].window.last != none {
		return false
	}
	h := &s.series[s.containers[slot].series]
	s.containers[slot].window = window{
		last:  max(end-int64(s.rules(h).Interval), 0), // when the window began: nothing in it is too old
		end:   end,
		usage: max(w.Usage, none),
		oom:   max(w.OOM, none),
	}
	h.version++
	h.profile.AddPeak(float64(peak), w.End)
	return true
}

// RemovePeaks takes out of dst, into which series were merged, the peaks of
// windows that are open at now. A checkpoint is written without them, so that a
// program that restarts within a window does not count it twice.
func (s *Store) RemovePeaks(dst *profile.Profile, now time.Time, series ...Series) {
	for _, i := range series {
		for slot := s.series[i].first; slot != none; slot = s.containers[slot].next {
			w := &s.containers[slot].window
			if end := time.Unix(0, w.end); w.peak() != none && now.Before(end) {
				dst.RemovePeak(float64(w.peak()), end)
			}
		}
	}
}

// Peak returns the peak of a container's memory window in bytes and the end of
// the window, or false if it has none.
func (s *Store) Peak(c ContainerKey) (peak amount.Amount, end time.Time, ok bool) {
	slot, known := s.byContainerKey[c]
	if !known || s.containers[slot].window.peak() == none {
		return 0, time.Time{}, false
	}
	w := &s.containers[slot].window
	return w.peak(), time.Unix(0, w.end).UTC(), true
}
