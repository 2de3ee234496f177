package rollout

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	fuseWindow = time.Hour
	fuseRounds = 5 // minimum number of ended rounds
	fuseShare  = 5 // trips if more than 1 in fuseShare judged rounds was reverted
	// fuseReverts is the minimum number of reverts, even if few of the ended rounds have a verdict.
	fuseReverts = 2
	// fuseMemory is the maximum age of a round that can trip a fuse. Older reverts would be
	// overrated, because deleted workloads take their successful rounds along.
	fuseMemory = 6 * time.Hour
	// maxHeldNamespaces is how many namespaces a fuse holds individually before it holds the
	// policy.
	maxHeldNamespaces = 20

	// startStep is the minimum time in which the number of started workloads doubles.
	startStep = time.Hour
	// startMemory is how long a started workload raises the limit for further starts.
	startMemory = 24 * time.Hour
)

// PolicyRounds sums up the rollouts of all workloads of a policy. Times are rounded to seconds.
type PolicyRounds struct {
	ended      []verdict
	running    []verdict // rounds in progress with an ended change
	reverts    []revert
	starts     []start
	lastChange map[string]int64 // of a pod, by namespace
}

// verdict is a round that ended or has a result so far. Times are seconds since 1970.
type verdict struct {
	at, changed      int64 // end of the round, and last change of a pod
	namespace        string
	judged, reverted bool
}

type revert struct {
	at                int64
	namespace, record string
}

type start struct {
	at        int64
	namespace string
}

// Add adds a workload by its record name. Its start counts only under hash, its rounds always.
func (p *PolicyRounds) Add(namespace, record string, s State, hash string) {
	if p.lastChange == nil {
		p.lastChange = map[string]int64{}
	}
	p.lastChange[namespace] = max(p.lastChange[namespace], 0) // adds the namespace even without a change
	if !s.Started.IsZero() && s.Hash == hash {
		p.starts = append(p.starts, start{s.Started.Unix(), namespace})
	}
	for i := range s.Rounds {
		r := &s.Rounds[i]
		changed := later(r.Time, r.Last).Unix()
		if r.begun() {
			p.lastChange[namespace] = max(p.lastChange[namespace], changed)
		}
		switch reverted := r.Outcome.reverted(); {
		case r.Outcome == "" && r.SoFar != "":
			p.running = append(p.running, verdict{at: r.Last.Unix(), changed: changed, namespace: namespace, judged: r.SoFar == Success})
		case r.Outcome != "" && !r.Ended.IsZero():
			judged := r.Outcome == Success || reverted
			p.ended = append(p.ended, verdict{at: r.Ended.Unix(), changed: changed, namespace: namespace, judged: judged, reverted: reverted})
			if reverted {
				p.reverts = append(p.reverts, revert{r.Ended.Unix(), namespace, record})
			}
		}
	}
}

// Trip describes a tripped fuse and the rounds within one hour that tripped it.
type Trip struct {
	// At is the time to acknowledge: the trip, or the last change before it was noticed; zero:
	// none.
	At       time.Time
	Judged   int // successful or reverted rounds
	Reverted int
	Record   string // namespace/name of the last reverted workload
	// Namespaces are the sorted namespaces with held pods. Empty means all pods of the policy.
	Namespaces []string
}

// Holds reports whether the fuse holds the pods of a namespace.
func (t *Trip) Holds(namespace string) bool {
	return !t.At.IsZero() && (t.HoldsPolicy() || slices.Contains(t.Namespaces, namespace))
}

// HoldsPolicy reports whether a tripped fuse holds all pods of the policy.
func (t *Trip) HoldsPolicy() bool { return !t.At.IsZero() && len(t.Namespaces) == 0 }

// Trip returns the first trip of the fuse: at least five rounds ended within one hour, and more
// than a fifth of the judged ones were reverted. Rounds without a verdict, such as evictions, are
// no evidence of success. If fewer rounds ended, successful rounds in progress count as well, so
// that large workloads do not hide the reverts of others.
//
// The reverts of one namespace count at most as often as all others together, and only if there are
// two others. If the fuse trips only without this limit, it holds that namespace, or the policy if
// there is no other namespace.
//
// Rounds do not count if their last change was at or before the acknowledged time, or if they ended
// more than six hours ago. A held pod starts no round, so the result stays the same until then.
func (p *PolicyRounds) Trip(acknowledged, now time.Time) Trip {
	if len(p.reverts) < fuseReverts {
		return Trip{}
	}
	slices.SortFunc(p.reverts, func(a, b revert) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.record, b.record))
	})
	since := int64(math.MinInt64)
	if written := p.acknowledged(acknowledged, now); !written.IsZero() {
		since = written.Unix()
	}
	t := p.trip(nil, since, now.Unix())
	if !t.HoldsPolicy() {
		t = t.merged(p.trip(p.running, since, now.Unix()))
	}
	for namespace, at := range p.lastChange {
		if t.Holds(namespace) && at <= now.Add(skew).Unix() {
			t.At = later(t.At, time.Unix(at, 0).UTC())
		}
	}
	return t
}

func (t Trip) merged(other Trip) Trip {
	if t.At.IsZero() || other.HoldsPolicy() {
		return other
	}
	if other.At.IsZero() {
		return t
	}
	t.Namespaces = append(t.Namespaces, other.Namespaces...)
	slices.Sort(t.Namespaces)
	t.Namespaces = slices.Compact(t.Namespaces)
	t.At = later(t.At, other.At)
	return t
}

// acknowledged returns the acknowledged time of the annotation. It ignores a time after the clock,
// the last change and the last revert, because that would cover future reverts.
func (p *PolicyRounds) acknowledged(written, now time.Time) time.Time {
	latest, limit := now.Unix(), now.Add(skew).Unix()
	for _, r := range p.reverts {
		if r.at <= limit {
			latest = max(latest, r.at)
		}
	}
	for _, at := range p.lastChange {
		if at <= limit {
			latest = max(latest, at)
		}
	}
	if written.Unix() > latest {
		return time.Time{}
	}
	return written
}

// edge is a time at which the number of rounds in the window changes.
type edge struct {
	at        int64
	namespace string
	counts
}

type counts struct{ ended, judged, reverted int }

func (c counts) plus(o counts) counts {
	return counts{c.ended + o.ended, c.judged + o.judged, c.reverted + o.reverted}
}

func (c counts) tooMany() bool { return c.reverted >= fuseReverts && c.reverted*fuseShare > c.judged }

func (p *PolicyRounds) trip(running []verdict, since, now int64) (t Trip) {
	edges := p.edges(running, since, now)
	var all counts
	byNamespace := make(map[string]counts, len(p.lastChange))
	for i, e := range edges {
		all, byNamespace[e.namespace] = all.plus(e.counts), byNamespace[e.namespace].plus(e.counts)
		if i+1 < len(edges) && edges[i+1].at == e.at || all.ended < fuseRounds || !all.tooMany() {
			continue
		}
		worst := ""
		for name, c := range byNamespace {
			more := c.reverted - byNamespace[worst].reverted
			if worst == "" || more > 0 || more == 0 && name < worst {
				worst = name
			}
		}
		if len(p.lastChange) == 1 || all.tooManyCapped(byNamespace[worst]) {
			return p.tripped(e.at, all)
		}
		held := t.Namespaces
		switch {
		case slices.Contains(held, worst):
		case len(held) >= maxHeldNamespaces:
			return p.tripped(e.at, all)
		default:
			t = p.tripped(e.at, all)
			t.Namespaces = append(held, worst)
		}
	}
	slices.Sort(t.Namespaces)
	return t
}

// tooManyCapped is tooMany with the reverts of the worst namespace capped at the reverts of all
// others. A single revert of the others is no evidence against the policy.
func (c counts) tooManyCapped(worst counts) bool {
	others := c.reverted - worst.reverted
	excess := max(0, worst.reverted-others)
	if excess > 0 && others < fuseReverts {
		return false
	}
	c.judged, c.reverted = c.judged-excess, c.reverted-excess
	return c.tooMany()
}

func (p *PolicyRounds) tripped(at int64, c counts) Trip {
	t := Trip{At: time.Unix(at, 0).UTC(), Judged: c.judged, Reverted: c.reverted}
	for _, r := range p.reverts {
		if r.at <= at && r.record != "" {
			t.Record = r.namespace + "/" + r.record
		}
	}
	return t
}

func (p *PolicyRounds) edges(running []verdict, since, now int64) (edges []edge) {
	const window = int64(fuseWindow / time.Second)
	oldest, latest := now-int64(fuseMemory/time.Second), now+int64(skew/time.Second)
	for _, verdicts := range [...][]verdict{p.ended, running} {
		for _, v := range verdicts {
			if v.at <= since || v.changed <= since || v.at < oldest || v.at > latest || !p.revertNear(v.at, window) {
				continue
			}
			c := counts{ended: 1}
			if v.judged {
				c.judged = 1
			}
			if v.reverted {
				c.reverted = 1
			}
			edges = append(edges, edge{v.at, v.namespace, c})
			if v.at+window <= now {
				edges = append(edges, edge{v.at + window, v.namespace, counts{-c.ended, -c.judged, -c.reverted}})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	return edges
}

// revertNear reports whether a revert is within window of at. Only such rounds can trip the fuse.
func (p *PolicyRounds) revertNear(at, window int64) bool {
	i, _ := slices.BinarySearchFunc(p.reverts, at-window, func(r revert, at int64) int { return cmp.Compare(r.at, at) })
	return i < len(p.reverts) && p.reverts[i].at <= at+window
}

// StartCount is the number of started workloads of a namespace.
type StartCount struct {
	Recent int // within the current step
	All    int // with the 24 hours before
}

// Compare orders namespaces by their starts, the fewest first.
func (c StartCount) Compare(o StartCount) int {
	return cmp.Or(cmp.Compare(c.Recent, o.Recent), cmp.Compare(c.All, o.All))
}

// Starts returns how many more workloads the policy may start now, and the starts by namespace. The
// limit per hour is the rate, or the number of starts in the 24 hours before if higher. So the
// total doubles each hour, survives a night outside the schedule, and falls back to the rate a day
// later. An observation period above one hour replaces the hour. A rate of 0 is no limit.
func (p *PolicyRounds) Starts(rate int, period time.Duration, now time.Time) (left int, by map[string]StartCount) {
	if rate <= 0 {
		return math.MaxInt, nil
	}
	by = map[string]StartCount{}
	step, recent, before := max(startStep, period), 0, 0
	for _, s := range p.starts {
		age := now.Sub(time.Unix(s.at, 0))
		if age < -skew || age >= step+startMemory { // written long ago, or by a clock far ahead
			continue
		}
		count := by[s.namespace]
		count.All++
		if age < step {
			recent++
			count.Recent++
		} else {
			before++
		}
		by[s.namespace] = count
	}
	return max(0, max(rate, before)-recent), by
}
