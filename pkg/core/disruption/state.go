package disruption

import (
	"maps"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// State is what one plan must know of earlier ones. The zero value knows of none.
type State struct {
	Recommended PodStates // of the recommendations
	// Shared are those of the shares, by shareStep. A share of another step starts fresh: its target is new.
	Shared [shareSteps]PodStates
	// Owners holds what came of the last changes, by Group.Key, for a day after the last one.
	Owners map[string]ChangeRecord
	// Left is when a pod was last evicted because it leaves its node, by Group.Key, for leaveInterval.
	Left map[string]time.Time
}

// PodStates is what one plan must know of the pods of earlier ones, by UID. Entries are dropped
// when a view no longer has the pod.
type PodStates struct {
	// Resizing is when a pod was first seen in its resize, for pods that do not show since when.
	Resizing map[string]time.Time
	// Crowded is when a pod was first found not to fit on its node.
	Crowded map[string]time.Time
	// Refused holds what a node refused to give as infeasible, by container.
	Refused map[string]map[string]resources.List
	// Tries counts how often the same was asked for a pod in vain.
	Tries map[string]Try
	// Restarts holds the last resize that was to restart a pod while it was ready.
	Restarts map[string]RestartState
	// Protected is when a pod could last not be changed although the plan said so, as for
	// a PodDisruptionBudget, or because its memory is in use.
	Protected map[string]time.Time
}

// leaveInterval is how long no further pod of an owner leaves its node: what comes back to it
// must not be evicted again and again.
const leaveInterval = time.Hour

// Try is a resize that was asked for.
type Try struct {
	For   Sizes
	Count int
	Until time.Time // when it may be asked for again
}

// Outcome is what came of an action.
type Outcome uint8

// The outcomes. Of an action that was not tried nothing is recorded.
const (
	Done      Outcome = iota
	Prevented         // not possible now, as for a PodDisruptionBudget or memory that is in use
	Failed            // a resize was refused, or nobody knows
	TooMuch           // a resize was refused because the node can never grant it
)

// Record takes over what came of an action of the last plan. Only Plan and FollowRestart change a State besides.
func (m *State) Record(a Action, o Outcome, now time.Time) {
	pods := &m.Recommended
	if a.SharesOnly() {
		pods = &m.Shared[stepOf(a.Cause)]
	}
	switch o {
	case Done:
		if a.Owner != "" {
			put(&m.Owners, a.Owner, m.Owners[a.Owner].Changed(a.Change, a.Newest, now))
			if a.Cause == NodeCrowded {
				put(&m.Left, a.Owner, now)
			}
		}
		if a.Evict {
			return
		}
		if !a.Restart.At.IsZero() { // one that waits for its node waits since the first resize
			put(&pods.Restarts, a.UID, RestartState{Restart: a.Restart, Pending: pods.Restarts[a.UID].Pending})
		}
	case Prevented: // others go first from now on
		put(&pods.Protected, a.UID, now)
		return
	case TooMuch:
		put(&pods.Refused, a.UID, requests(a.Containers))
	}
	pods.tried(a.UID, a.Containers, now)
}

// put sets an entry of a map that may be nil.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// Next returns the state of a plan at now. The method carry fills in what concerns pods.
func (m State) Next(now time.Time) State {
	owners := maps.Clone(m.Owners)
	maps.DeleteFunc(owners, func(_ string, r ChangeRecord) bool { return r.Expired(now) })
	left := maps.Clone(m.Left)
	maps.DeleteFunc(left, func(_ string, at time.Time) bool { return now.Sub(at) >= leaveInterval })
	return State{Recommended: newPodStates(), Owners: owners, Left: left}
}

func newPodStates() PodStates {
	return PodStates{Resizing: map[string]time.Time{}, Crowded: map[string]time.Time{}, Tries: map[string]Try{}, Refused: map[string]map[string]resources.List{}}
}

// carry takes over what the states before know of a pod.
func (m *PodStates) carry(before PodStates, p *Pod, now time.Time) {
	if p.ResizeSince.IsZero() && (p.Resize != NotResizing || p.Unanswered()) {
		m.Resizing[p.UID] = before.Since(p, now)
	}
	if refused, known := before.Refused[p.UID]; known && !before.granted(p) {
		m.Refused[p.UID] = refused
	}
	if try, known := before.Tries[p.UID]; known && p.Changed() {
		m.Tries[p.UID] = try
	}
	if at, known := before.Protected[p.UID]; known && p.Changed() {
		put(&m.Protected, p.UID, at)
	}
	if r, known := before.Restarts[p.UID].follow(p, now); known {
		put(&m.Restarts, p.UID, r)
	}
}

// learn sees from a pod what came of the last change of its owner. It is true with a
// pause that begins now, which is to be written on the pod.
func (m *State) learn(owner string, p *Pod, now time.Time) (Backoff, bool) {
	noted := p.noted().Backoff
	left := noted.Fruitless > 0 && p.Changed()
	if !left && len(m.Owners) == 0 {
		return Backoff{}, false
	}
	record, known := m.Owners[owner]
	if left && owner != "" {
		record, known = record.Resumed(noted, now), true
	}
	if !known {
		return Backoff{}, false
	}
	next := p.Change()
	if p.Boosted { // extra CPU hides what it got
		next.Forget(resources.CPU)
	}
	seen := record.See(p.Created, next, now)
	put(&m.Owners, owner, seen)
	return seen.Backoff, seen.Fruitless > record.Fruitless
}

// The pauses between asking twice for the same resize.
const (
	firstPause = time.Minute
	longPause  = 30 * time.Minute
)

// tried records that a resize was asked for at now. What is asked for again although nothing came of it waits longer
// each time; the second time follows at once.
func (m *PodStates) tried(uid string, wanted []policy.ContainerTarget, now time.Time) {
	try := Try{For: wantedSizes(wanted), Until: now}
	if before := m.Tries[uid]; maps.Equal(before.For, try.For) {
		try.Count = before.Count + 1
		try.Until = now.Add(min(firstPause<<min(try.Count-1, 10), longPause))
	}
	put(&m.Tries, uid, try)
}

// Waits reports whether what the pod would get was asked for in vain, and is not to be asked for again at now.
func (m PodStates) Waits(p *Pod, now time.Time) bool {
	return m.Asked(p) && now.Before(m.Tries[p.UID].Until)
}

// Asked reports whether what the pod would get was asked for before.
func (m PodStates) Asked(p *Pod) bool {
	try, known := m.Tries[p.UID]
	return known && maps.Equal(try.For, wantedSizes(p.Targets()))
}

func wantedSizes(of []policy.ContainerTarget) Sizes {
	all := Sizes(requests(of))
	for _, f := range of {
		if limit, some := separateLimit(f); some {
			all[f.Name+ofLimit] = resources.List{}.With(resources.Memory, limit)
		}
	}
	return all
}

func requests(of []policy.ContainerTarget) map[string]resources.List {
	all := make(map[string]resources.List, len(of))
	for _, f := range of {
		all[f.Name] = f.Requests
	}
	return all
}

// granted reports whether the pod has got what its node once refused.
func (m PodStates) granted(p *Pod) bool {
	refused := m.Refused[p.UID]
	return p.Resize == NotResizing && !p.Any(func(c *Container, k resources.Kind) bool {
		return c.Actual.Requests.Value(k) < refused[c.Target.Name].Value(k)
	})
}

// NodeRefuses reports whether the node is known to refuse the targets of the pod. A
// lower target for any container gives it another chance.
func (m PodStates) NodeRefuses(p *Pod) bool {
	refused, known := m.Refused[p.UID]
	return known && !p.Any(func(c *Container, k resources.Kind) bool {
		was, had := refused[c.Target.Name].Get(k)
		target, has := c.Target.Requests.Get(k)
		return had && has && target < was
	})
}

// Since is when the pod entered the current state of its resize; now if that is not known.
func (m PodStates) Since(p *Pod, now time.Time) time.Time {
	if !p.ResizeSince.IsZero() {
		return p.ResizeSince
	}
	if first, known := m.Resizing[p.UID]; known {
		return first
	}
	return now
}
