package rollout

import (
	"math"
	"slices"
	"time"
)

const (
	fuseWindow = time.Hour
	fuseRounds = 5 // fewer rounds prove nothing
	fuseShare  = 5 // the fuse trips when more than one in so many judged rounds was reverted
	// fuseReverts is the least number of reverts, because one of five rounds is not more than a fifth.
	fuseReverts = 2

	// startStep is the least time in which the number of begun workloads doubles.
	startStep = time.Hour
	// startMemory is how long a begun workload lets others begin.
	startMemory = 24 * time.Hour
)

// Fleet sums up the rollouts of all workloads of one policy. Times have a resolution of a second.
type Fleet struct {
	ended   []verdict
	running []verdict // rounds in progress with a change that ended
	starts  []int64
	harmed  []int64 // times of ended that were reverted
}

// verdict is a round that has ended, or was judged so far.
type verdict struct {
	at             int64 // seconds since 1970
	judged, harmed bool
}

// Reset empties the fleet, and keeps its memory.
func (f *Fleet) Reset() {
	f.ended, f.running, f.starts, f.harmed = f.ended[:0], f.running[:0], f.starts[:0], f.harmed[:0]
}

// Add adds a workload. Its begin counts only under the current hash of the policy, its rounds always.
func (f *Fleet) Add(s State, hash string) {
	if !s.Started.IsZero() && s.Hash == hash {
		f.starts = append(f.starts, s.Started.Unix())
	}
	for i := range s.Rounds {
		switch r := &s.Rounds[i]; {
		case r.Outcome == "" && r.SoFar != "":
			f.running = append(f.running, verdict{at: r.Last.Unix(), judged: r.SoFar == Success})
		case r.Outcome != "" && !r.Ended.IsZero():
			f.ended = append(f.ended, verdict{at: r.Ended.Unix(), judged: r.Outcome == Success || r.Outcome.harmed(), harmed: r.Outcome.harmed()})
			if r.Outcome.harmed() {
				f.harmed = append(f.harmed, r.Ended.Unix())
			}
		}
	}
}

// Trip is when a fuse tripped, and the rounds within one hour that made it trip.
type Trip struct {
	At       time.Time // zero: it has not tripped
	Ended    int
	Judged   int // rounds that were successful or reverted
	Reverted int
}

// Trip returns when the fuse of the policy tripped first: at least five rounds ended within one hour,
// and more than a fifth of those that were judged were reverted. Evictions and other rounds without a
// verdict are no evidence of success. Where fewer ended, successful rounds in progress count as well, so
// that large workloads do not hide the reverts of others. Rounds that ended at or before the acknowledged
// time do not count; see Acknowledged. A policy with a tripped fuse begins no round, so the answer stays
// the same until then.
func (f *Fleet) Trip(acknowledged, now time.Time) Trip {
	if len(f.harmed) < fuseReverts {
		return Trip{}
	}
	slices.Sort(f.harmed)
	since := f.Acknowledged(acknowledged, now).Unix()
	tripped := f.trip(f.ended, nil, since, now.Unix())
	if tripped.At.IsZero() {
		tripped = f.trip(f.ended, f.running, since, now.Unix())
	}
	return tripped
}

// Acknowledged returns until when the reverts of the policy are acknowledged, from what a user wrote.
// A time ahead of both the clock and the last reverted round acknowledges nothing: it would cover
// reverts that nobody has seen.
func (f *Fleet) Acknowledged(written, now time.Time) time.Time {
	latest := now.Unix()
	for _, at := range f.harmed {
		if at <= now.Add(skew).Unix() {
			latest = max(latest, at)
		}
	}
	if written.Unix() > latest {
		return time.Time{}
	}
	return written
}

// edge is a moment at which the number of rounds within the window changes.
type edge struct {
	at                      int64
	ended, judged, reverted int
}

func (f *Fleet) trip(ended, running []verdict, since, now int64) Trip {
	const window = int64(fuseWindow / time.Second)
	var edges []edge
	for _, all := range [...][]verdict{ended, running} {
		for _, v := range all {
			if v.at <= since || v.at > now+int64(skew/time.Second) || !f.harmNear(v.at, window) {
				continue
			}
			one := edge{at: v.at, ended: 1}
			if v.judged {
				one.judged = 1
			}
			if v.harmed {
				one.reverted = 1
			}
			edges = append(edges, one)
			if v.at+window <= now {
				edges = append(edges, edge{v.at + window, -one.ended, -one.judged, -one.reverted})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(a.at - b.at) })
	t := Trip{}
	for i, e := range edges {
		t.Ended, t.Judged, t.Reverted = t.Ended+e.ended, t.Judged+e.judged, t.Reverted+e.reverted
		if i+1 < len(edges) && edges[i+1].at == e.at {
			continue
		}
		if t.Ended >= fuseRounds && t.Reverted >= fuseReverts && t.Reverted*fuseShare > t.Judged {
			t.At = time.Unix(e.at, 0).UTC()
			return t
		}
	}
	return Trip{}
}

// harmNear reports whether a round was reverted within a window of a moment: the others matter for no trip.
func (f *Fleet) harmNear(at, window int64) bool {
	i, _ := slices.BinarySearch(f.harmed, at-window)
	return i < len(f.harmed) && f.harmed[i] <= at+window
}

// Starts returns how many further workloads the policy may begin with now: within an hour, rate of
// them, or as many as it began with in the 24 hours before, whichever is more. So the number doubles
// each hour, goes on after a closed schedule of a night, and starts small again for workloads that
// are selected later. A period of observation above an hour takes the place of the hour. A rate of 0
// is no limit.
func (f *Fleet) Starts(rate int, period time.Duration, now time.Time) int {
	if rate <= 0 {
		return math.MaxInt
	}
	step, recent, before := max(startStep, period), 0, 0
	for _, at := range f.starts {
		switch age := now.Sub(time.Unix(at, 0)); {
		case age < -skew: // written by a clock that is far ahead
		case age < step:
			recent++
		case age < step+startMemory:
			before++
		}
	}
	return max(0, max(rate, before)-recent)
}
