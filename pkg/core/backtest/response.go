package backtest

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/replay"
)

const (
	stay      = int64(12 * time.Hour)   // how long a request must stay near its level
	sustained = int64(15 * time.Minute) // how long a rise must last to count
	subsided  = int64(time.Hour)        // time below the request after which a rise is over
	fallen    = 0.5                     // a fall is when the peak of a day is below this part of the request
	relief    = 0.75                    // a cut to this part of the request answers it
)

// point is a request from an instant on.
type point struct {
	at      int64
	request float64
}

// converged returns the time from the start until the request stays within a fraction of a level for twelve hours.
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
		if in && next-since >= stay {
			return Outcome{float64(since-start) / 1e9, true}
		}
	}
	return Outcome{float64(end-start) / 1e9, false}
}

// rise is a time in which the use is above the request.
type rise struct {
	since int64   // when it began; 0 = there is none
	below int64   // since when the use is not above the request any more; 0 = it is
	level float64 // highest use of its first quarter of an hour
	open  bool    // it was sustained, and is not answered yet
	track []track // rises of the last day
}

// track follows the request after a rise.
type track struct {
	since       int64
	level, most float64
}

// fall is a time in which a day's peak is below half of the request.
type fall struct {
	peaks   []point // falling use within a day; the first is the highest
	since   int64   // when it began; 0 = there is none
	request float64 // when it began
}

// respond follows rises and falls of the scored phase.
func (w *scorer) respond(s replay.Sample) {
	if !w.scored {
		return
	}
	w.follow(s.At, false)
	w.rising(s)
	w.falling(s)
}

func (w *scorer) rising(s replay.Sample) {
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
	if s.At-r.since < sustained {
		r.level = max(r.level, s.Use)
	}
	if above {
		r.below = 0
	}
	if !r.open && above && s.At+s.Hold-r.since >= sustained {
		r.open = true
		r.track = append(r.track, track{r.since, r.level, float64(s.Request)})
	}
	if r.open && r.below != 0 && s.At+s.Hold-r.below >= subsided {
		w.result.Rises = append(w.result.Rises, Outcome{float64(r.below-r.since) / 1e9, false})
		*r = rise{track: r.track}
	}
}

func (w *scorer) falling(s replay.Sample) {
	f := &w.fall
	for len(f.peaks) > 0 && f.peaks[len(f.peaks)-1].request <= s.Use {
		f.peaks = f.peaks[:len(f.peaks)-1]
	}
	f.peaks = append(f.peaks, point{s.At, s.Use})
	for f.peaks[0].at <= s.At-day {
		f.peaks = f.peaks[1:]
	}
	low := s.At-w.ground.warm >= day && f.peaks[0].request < fallen*float64(s.Request)
	switch {
	case low && f.since == 0:
		f.since, f.request = s.At, float64(s.Request)
	case !low && f.since != 0:
		w.result.Falls = append(w.result.Falls, Outcome{float64(s.At-f.since) / 1e9, false})
		f.since = 0
	}
}

// answer notes whether a change answers a rise or a fall.
func (w *scorer) answer(c replay.Change) {
	if !w.scored {
		return
	}
	w.follow(c.At, false)
	for i := range w.rise.track {
		w.rise.track[i].most = max(w.rise.track[i].most, float64(c.To))
	}
	if r := &w.rise; r.open && float64(c.To) >= r.level {
		w.result.Rises = append(w.result.Rises, Outcome{float64(c.At-r.since) / 1e9, true})
		*r = rise{track: r.track}
	}
	if f := &w.fall; f.since != 0 && float64(c.To) <= relief*f.request {
		w.result.Falls = append(w.result.Falls, Outcome{float64(c.At-f.since) / 1e9, true})
		f.since = 0
	}
}

// follow closes the tracks of rises that are a day old, or all.
func (w *scorer) follow(now int64, all bool) {
	tracks := w.rise.track[:0]
	for _, t := range w.rise.track {
		if !all && now-t.since <= day {
			tracks = append(tracks, t)
			continue
		}
		w.result.Overshoot = append(w.result.Overshoot, t.most/math.Max(t.level, 1)-1)
	}
	w.rise.track = tracks
}

// finish ends what is still waited for.
func (w *scorer) finish() {
	end := w.ground.end
	if w.rise.open {
		w.result.Rises = append(w.result.Rises, Outcome{float64(end-w.rise.since) / 1e9, false})
	}
	if w.fall.since != 0 {
		w.result.Falls = append(w.result.Falls, Outcome{float64(end-w.fall.since) / 1e9, false})
	}
	w.follow(end, true)
}
