package disruption

import (
	"maps"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// State is what one plan must know of earlier ones; the zero value knows of none.
// Entries by the UID of a pod are dropped when a view no longer has the pod, those by
// owner a day after the last change.
type State struct {
	// Resizing is when a pod was first seen in its resize, for pods that do not
	// tell since when.
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
	// Owners holds what came of the last changes, by Group.Key.
	Owners map[string]ChangeRecord
}

// RestartState is what became of a restart.
type RestartState struct {
	Restart
	Over bool // the pod was ready again, or is not waited for any more
	// Pending is since when the pod waits for its node to carry the resize out. The
	// zero value: it does not wait.
	Pending time.Time
	Stuck   bool      // it waits for so long that nobody else does
	Asked   time.Time // when the last resize was asked for, as far as is known
}

// Try is a resize that was asked for.
type Try struct {
	For   map[string]resources.List // the requests, by container
	Count int
	Until time.Time // when it may be asked for again
}

// Next returns the memory of a plan at now. Carry fills in what concerns pods.
func (m State) Next(now time.Time) State {
	owners := maps.Clone(m.Owners)
	maps.DeleteFunc(owners, func(_ string, r ChangeRecord) bool { return r.Expired(now) })
	return State{Resizing: map[string]time.Time{}, Crowded: map[string]time.Time{}, Tries: map[string]Try{},
		Refused: map[string]map[string]resources.List{}, Owners: owners}
}

// Carry takes over what the memory before knows of a pod.
func (m *State) Carry(before State, p *Pod, now time.Time) {
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
		m.Protect(p.UID, at)
	}
	m.follow(before.Restarts[p.UID], p, now)
}

// follow sees what became of the last restart of a pod. What is written on the pod
// counts where this process does not know it.
func (m *State) follow(r RestartState, p *Pod, now time.Time) {
	if p.Restart.At.After(r.At) {
		r = RestartState{Restart: p.Restart, Pending: r.Pending, Asked: p.Restart.At}
	}
	switch {
	case p.RestartPending():
		if r.Pending.IsZero() {
			// The node may have said the same of an earlier resize for long.
			r.Pending = slices.MaxFunc([]time.Time{p.ResizeSince, r.At}, time.Time.Compare)
			if r.Pending.IsZero() {
				r.Pending = now
			}
		}
		if !r.At.IsZero() {
			r.At = now // the restart is still to come
		}
		// A node that never gives what was asked for must not hold the others for ever. One
		// that is at it, or was asked for something else a moment ago, may give it now.
		since := r.Pending
		if p.Resize == ResizeInProgress && p.ResizeSince.After(since) {
			since = p.ResizeSince
		}
		r.Over, r.Stuck = false, now.Sub(since) >= RestartLimit && now.Sub(r.Asked) >= RestartGrace
	case r.At.IsZero():
		return
	default:
		r.Over = r.Over || !p.Recovering(r.Restart, now)
		r.Pending, r.Stuck = time.Time{}, false
	}
	m.restart(p.UID, r)
}

// Disrupted records that a resize was asked for that restarts a ready pod. One that
// waits for its node waits since the first of them.
func (m *State) Disrupted(uid string, r Restart) {
	m.restart(uid, RestartState{Restart: r, Pending: m.Restarts[uid].Pending, Asked: r.At})
}

func (m *State) restart(uid string, r RestartState) {
	if m.Restarts == nil {
		m.Restarts = map[string]RestartState{}
	}
	m.Restarts[uid] = r
}

// Protect records that at a time a pod could not be changed although the plan said so.
func (m *State) Protect(uid string, at time.Time) {
	if m.Protected == nil {
		m.Protected = map[string]time.Time{}
	}
	m.Protected[uid] = at
}

// Learn sees from a pod what came of the last change of its owner. It is true with a
// pause that begins now, which is to be written on the pod.
func (m *State) Learn(owner string, p *Pod, now time.Time) (Backoff, bool) {
	left := p.Backoff.Fruitless > 0 && p.Changed()
	if !left && len(m.Owners) == 0 {
		return Backoff{}, false
	}
	record, known := m.Owners[owner]
	if left && owner != "" {
		record, known = record.Resumed(p.Backoff, now), true
	}
	if !known {
		return Backoff{}, false
	}
	next := p.Change()
	if p.Boosted { // extra CPU hides what it got
		next.Forget(resources.CPU)
	}
	seen := record.See(p.Created, next, now)
	m.keep(owner, seen)
	return seen.Backoff, seen.Fruitless > record.Fruitless
}

// Refuse records that the node of a pod can never grant these sizes.
func (m *State) Refuse(uid string, wanted []policy.Fitted) {
	if m.Refused == nil {
		m.Refused = map[string]map[string]resources.List{}
	}
	m.Refused[uid] = requests(wanted)
}

// Did records that a pod of an owner was changed at now, when the newest pod of the
// owner had been created at newest. Of an owner without a name nothing is kept.
func (m *State) Did(owner string, c Change, newest, now time.Time) {
	if owner == "" {
		return
	}
	m.keep(owner, m.Owners[owner].Changed(c, newest, now))
}

func (m *State) keep(owner string, r ChangeRecord) {
	if m.Owners == nil {
		m.Owners = map[string]ChangeRecord{}
	}
	m.Owners[owner] = r
}

// The pauses between asking twice for the same resize.
const (
	firstPause = time.Minute
	longPause  = 30 * time.Minute
)

// Tried records that a resize was asked for at now. What is asked for again
// although nothing came of it waits longer each time; the second time follows
// at once.
func (m *State) Tried(uid string, wanted []policy.Fitted, now time.Time) {
	if m.Tries == nil {
		m.Tries = map[string]Try{}
	}
	try := Try{For: requests(wanted), Until: now}
	if before := m.Tries[uid]; maps.Equal(before.For, try.For) {
		try.Count = before.Count + 1
		try.Until = now.Add(min(firstPause<<min(try.Count-1, 10), longPause))
	}
	m.Tries[uid] = try
}

// Waits tells whether what the pod would get was asked for in vain, and is not to be
// asked for again at now.
func (m State) Waits(p *Pod, now time.Time) bool {
	return m.Asked(p) && now.Before(m.Tries[p.UID].Until)
}

// Asked reports whether what the pod would get was asked for before.
func (m State) Asked(p *Pod) bool {
	try, known := m.Tries[p.UID]
	return known && maps.Equal(try.For, requests(p.Fitted()))
}

func requests(of []policy.Fitted) map[string]resources.List {
	all := make(map[string]resources.List, len(of))
	for _, f := range of {
		all[f.Name] = f.Requests
	}
	return all
}

// granted tells whether the pod has got what its node once refused.
func (m State) granted(p *Pod) bool {
	refused := m.Refused[p.UID]
	return p.Resize == NotResizing && !p.Any(func(c *Container, k resources.Kind) bool {
		return c.Current.Requests.Value(k) < refused[c.Fitted.Name].Value(k)
	})
}

// Refuses tells whether the node is known to refuse the targets of the pod. A
// lower target for any container gives it another chance.
func (m State) Refuses(p *Pod) bool {
	refused, known := m.Refused[p.UID]
	return known && !p.Any(func(c *Container, k resources.Kind) bool {
		was, had := refused[c.Fitted.Name].Get(k)
		target, has := c.Fitted.Requests.Get(k)
		return had && has && target < was
	})
}

// Since is when the pod entered the present state of its resize; now if that is not
// known.
func (m State) Since(p *Pod, now time.Time) time.Time {
	if !p.ResizeSince.IsZero() {
		return p.ResizeSince
	}
	if first, known := m.Resizing[p.UID]; known {
		return first
	}
	return now
}
