package disruption

import (
	"maps"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// State carries the outcome of earlier plans into the next one. The zero value is valid.
type State struct {
	Recommended PodStates // for actions that apply recommendations
	// Shared is the same for shares by shareStep: a share that changes its step has a new target.
	Shared [shareSteps]PodStates
	// Owners holds outcomes by Group.Key, for a day after the last change.
	Owners map[string]ChangeRecord
	// LastCrowdEviction is the last eviction from a crowded node by Group.Key, for
	// crowdEvictionInterval.
	LastCrowdEviction map[string]time.Time
}

// PodStates is state by pod UID. An entry is dropped when the view no longer contains the pod.
type PodStates struct {
	// Resizing is when a pod was first seen in its resize, for pods that do not report the time.
	Resizing map[string]time.Time
	// Crowded is when a pod was first found not to fit on its node.
	Crowded map[string]time.Time
	// Refused holds the requests that a node refused as infeasible, by container.
	Refused map[string]map[string]resources.List
	// Attempts counts consecutive requests of the same resize.
	Attempts map[string]Attempt
	// Restarts holds the last resize that was to restart a pod while it was ready.
	Restarts map[string]RestartState
	// Protected is when an action was last prevented, for example by a PodDisruptionBudget.
	Protected map[string]time.Time
}

// crowdEvictionInterval is the minimum time between evictions of one owner's pods from crowded
// nodes. It prevents repeated evictions of pods that return to the same node.
const crowdEvictionInterval = time.Hour

// Attempt is a requested resize.
type Attempt struct {
	Target PodResources
	Count  int
	Until  time.Time // earliest time of the next request
}

// Outcome is the result of an action.
type Outcome uint8

// The outcomes. An action that was not tried has none.
const (
	Done       Outcome = iota
	Prevented          // not possible now, for example a PodDisruptionBudget or memory in use
	Failed             // a resize was refused, or the outcome is unknown
	Infeasible         // a resize was refused because the node can never grant it
)

// Record stores the outcome of an action of the last plan. Only Plan and FollowRestart modify a
// State otherwise.
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
				put(&m.LastCrowdEviction, a.Owner, now)
			}
		}
		if a.Evict {
			return
		}
		if !a.Restart.At.IsZero() { // a pending restart keeps the time of the first resize
			put(&pods.Restarts, a.UID, RestartState{Restart: a.Restart, PendingSince: pods.Restarts[a.UID].PendingSince})
		}
	case Prevented: // later plans postpone it
		put(&pods.Protected, a.UID, now)
		return
	case Infeasible:
		put(&pods.Refused, a.UID, requests(a.Containers))
	}
	pods.recordAttempt(a.UID, a.Containers, now)
}

func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// Next returns the initial state of a plan at now. The pod states are filled in by carry.
func (m State) Next(now time.Time) State {
	owners := maps.Clone(m.Owners)
	maps.DeleteFunc(owners, func(_ string, r ChangeRecord) bool { return r.Expired(now) })
	left := maps.Clone(m.LastCrowdEviction)
	maps.DeleteFunc(left, func(_ string, at time.Time) bool { return now.Sub(at) >= crowdEvictionInterval })
	return State{Recommended: newPodStates(), Owners: owners, LastCrowdEviction: left}
}

func newPodStates() PodStates {
	return PodStates{Resizing: map[string]time.Time{}, Crowded: map[string]time.Time{}, Attempts: map[string]Attempt{}, Refused: map[string]map[string]resources.List{}}
}

func (m *PodStates) carry(before PodStates, p *Pod, now time.Time) {
	if p.ResizeSince.IsZero() && (p.Resize != NotResizing || p.ResizeUnreported()) {
		m.Resizing[p.UID] = before.Since(p, now)
	}
	if refused, known := before.Refused[p.UID]; known && !before.granted(p) {
		m.Refused[p.UID] = refused
	}
	if try, known := before.Attempts[p.UID]; known && p.NeedsChange() {
		m.Attempts[p.UID] = try
	}
	if at, known := before.Protected[p.UID]; known && p.NeedsChange() {
		put(&m.Protected, p.UID, at)
	}
	if r, known := before.Restarts[p.UID].follow(p, now); known {
		put(&m.Restarts, p.UID, r)
	}
}

// observeOutcome updates the owner's record from a pod. True: store the new backoff on the pod.
func (m *State) observeOutcome(owner string, p *Pod, now time.Time) (Backoff, bool) {
	noted := p.persisted().Backoff
	left := noted.Ineffective > 0 && p.NeedsChange()
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
	if p.Boosted { // the boost hides the CPU of the change
		next.Forget(resources.CPU)
	}
	seen := record.Observe(p.Created, next, now)
	put(&m.Owners, owner, seen)
	return seen.Backoff, seen.Ineffective > record.Ineffective
}

// Delay between repeated requests of the same resize.
const (
	minRetryDelay = time.Minute
	maxRetryDelay = 30 * time.Minute
)

// recordAttempt records a resize request at now. The second request of the same target may follow
// at once, later ones after a doubled delay.
func (m *PodStates) recordAttempt(uid string, wanted []policy.ContainerTarget, now time.Time) {
	try := Attempt{Target: targetResources(wanted), Until: now}
	if before := m.Attempts[uid]; maps.Equal(before.Target, try.Target) {
		try.Count = before.Count + 1
		try.Until = now.Add(min(minRetryDelay<<min(try.Count-1, 10), maxRetryDelay))
	}
	put(&m.Attempts, uid, try)
}

// BacksOff reports whether the target was requested in vain and must not be requested again at now.
func (m PodStates) BacksOff(p *Pod, now time.Time) bool {
	return m.Requested(p) && now.Before(m.Attempts[p.UID].Until)
}

// Requested reports whether the same target was requested before.
func (m PodStates) Requested(p *Pod) bool {
	try, known := m.Attempts[p.UID]
	return known && maps.Equal(try.Target, targetResources(p.Targets()))
}

func targetResources(of []policy.ContainerTarget) PodResources {
	all := PodResources(requests(of))
	for _, f := range of {
		if limit, some := independentLimit(f); some {
			all[f.Name+limitSuffix] = resources.List{}.With(resources.Memory, limit)
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

func (m PodStates) granted(p *Pod) bool {
	refused := m.Refused[p.UID]
	return p.Resize == NotResizing && !p.AnyObserved(func(c *Container, k resources.Kind) bool {
		return c.Actual.Requests.Value(k) < refused[c.Target.Name].Value(k)
	})
}

// NodeRefuses reports whether the node refused the targets. A lower target is tried again.
func (m PodStates) NodeRefuses(p *Pod) bool {
	refused, known := m.Refused[p.UID]
	return known && !p.AnyObserved(func(c *Container, k resources.Kind) bool {
		was, had := refused[c.Target.Name].Get(k)
		target, has := c.Target.Requests.Get(k)
		return had && has && target < was
	})
}

// Since returns when the pod entered the current state of its resize, or now if unknown.
func (m PodStates) Since(p *Pod, now time.Time) time.Time {
	if !p.ResizeSince.IsZero() {
		return p.ResizeSince
	}
	if first, known := m.Resizing[p.UID]; known {
		return first
	}
	return now
}
