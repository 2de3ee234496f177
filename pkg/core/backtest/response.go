package backtest

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/replay"
)

const (
	stableTime   = int64(12 * time.Hour)   // how long a request must remain near its level
	minRiseTime  = int64(15 * time.Minute) // minimum duration of a rise
	riseEndDelay = int64(time.Hour)        // time below the request after which a rise has ended
	fallRatio    = 0.5                     // a fall begins when the daily peak is below this share of the request
	reliefRatio  = 0.75                    // a change to this share of the request responds to a fall
)

type point struct {
	at      int64
	request float64
}

// converged returns the time until the request stays within a fraction of a level for stableTime.
func converged(path []point, level, fraction float64, end int64) Outcome {
	start, since, in := path[0].at, int64(0), false
	for i, p := range path {
		near := p.request >= (1-fraction)*level && p.request <= (1+fraction)*level
		if near && !in {
			since = p.at
		}
		in = near
		next := end
		if i+1 < len(path) {
			next = path[i+1].at
		}
		if in && next-since >= stableTime {
			return Outcome{float64(since-start) / 1e9, true}
		}
	}
	return Outcome{float64(end-start) / 1e9, false}
}

type rise struct {
	since int64   // start, 0 = no rise
	below int64   // time since which usage is not above the request, 0 = above
	level float64 // peak of the first 15 minutes
	open  bool    // long enough, without a response yet
	track []track // rises of the last day
}

// track follows the request after a rise.
type track struct {
	since             int64
	level, maxRequest float64
}

type fall struct {
	peaks   []point // descending usage within a day, the first is the peak
	since   int64   // start, 0 = no fall
	request float64 // at the start
}

func (w *scorer) trackResponses(s replay.Sample) {
	if !w.scored {
		return
	}
	w.closeTracks(s.At, false)
	w.trackRise(s)
	w.trackFall(s)
}

func (w *scorer) trackRise(s replay.Sample) {
	r := &w.rise
	above := s.Use > float64(s.Request)
	switch {
	case above && r.since == 0:
		r.since, r.level, r.open = s.At, s.Use, false
	case !above && r.since != 0 && !r.open:
		r.since = 0
	case !above && r.open && r.below == 0:
		r.below = s.At
	}
	if r.since == 0 {
		return
	}
	if s.At-r.since < minRiseTime {
		r.level = max(r.level, s.Use)
	}
	if above {
		r.below = 0
	}
	if !r.open && above && s.At+s.Duration-r.since >= minRiseTime {
		r.open = true
		r.track = append(r.track, track{r.since, r.level, float64(s.Request)})
	}
	if r.open && r.below != 0 && s.At+s.Duration-r.below >= riseEndDelay {
		w.result.Rises = append(w.result.Rises, Outcome{float64(r.below-r.since) / 1e9, false})
		*r = rise{track: r.track}
	}
}

func (w *scorer) trackFall(s replay.Sample) {
	f := &w.fall
	for len(f.peaks) > 0 && f.peaks[len(f.peaks)-1].request <= s.Use {
		f.peaks = f.peaks[:len(f.peaks)-1]
	}
	f.peaks = append(f.peaks, point{s.At, s.Use})
	for f.peaks[0].at <= s.At-day {
		f.peaks = f.peaks[1:]
	}
	low := s.At-w.ground.warm >= day && f.peaks[0].request < fallRatio*float64(s.Request)
	switch {
	case low && f.since == 0:
		f.since, f.request = s.At, float64(s.Request)
	case !low && f.since != 0:
		w.result.Falls = append(w.result.Falls, Outcome{float64(s.At-f.since) / 1e9, false})
		f.since = 0
	}
}

func (w *scorer) recordResponse(c replay.Change) {
	if !w.scored {
		return
	}
	w.closeTracks(c.At, false)
	for i := range w.rise.track {
		w.rise.track[i].maxRequest = max(w.rise.track[i].maxRequest, float64(c.To))
	}
	if r := &w.rise; r.open && float64(c.To) >= r.level {
		w.result.Rises = append(w.result.Rises, Outcome{float64(c.At-r.since) / 1e9, true})
		*r = rise{track: r.track}
	}
	if f := &w.fall; f.since != 0 && float64(c.To) <= reliefRatio*f.request {
		w.result.Falls = append(w.result.Falls, Outcome{float64(c.At-f.since) / 1e9, true})
		f.since = 0
	}
}

// closeTracks closes the tracks of rises over a day old, or all.
func (w *scorer) closeTracks(now int64, all bool) {
	tracks := w.rise.track[:0]
	for _, t := range w.rise.track {
		if !all && now-t.since <= day {
			tracks = append(tracks, t)
			continue
		}
		w.result.Overshoot = append(w.result.Overshoot, t.maxRequest/math.Max(t.level, 1)-1)
	}
	w.rise.track = tracks
}

func (w *scorer) closeOutcomes() {
	end := w.ground.end
	if w.rise.open {
		w.result.Rises = append(w.result.Rises, Outcome{float64(end-w.rise.since) / 1e9, false})
	}
	if w.fall.since != 0 {
		w.result.Falls = append(w.result.Falls, Outcome{float64(end-w.fall.since) / 1e9, false})
	}
	w.closeTracks(end, true)
}
