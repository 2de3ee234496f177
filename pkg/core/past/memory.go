package disruption

import (
	"maps"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/calm"
	"loadline.dev/loadline/pkg/core/policy"
)

// Memory is what one plan must know of earlier ones. Entries by the UID of a pod
// are dropped when a View no longer has the pod, those by owner a day after the
// last change.
type Memory struct {
	// Resizing is when a pod was first seen in its resize, for pods that do not
	// tell since when.
	Resizing map[string]time.Time
	// Crowded is when a pod was first found not to fit on its node.
	Crowded map[string]time.Time
	// Refused holds what a node refused to give as infeasible, by container.
	Refused map[string]map[string]amount.Resources
	// Tries counts how often the same was asked for a pod in vain.
	Tries map[string]Try
	// Owners holds what came of the last changes, by Group.Key.
	Owners map[string]calm.Record
}

// Try is a resize that was asked for.
type Try struct {
	For   map[string]amount.Resources // the requests, by container
	Count int
	Until time.Time // when it may be asked for again
}

// next returns the memory of a plan at now, which fills in what concerns pods.
func (m Memory) next(now time.Time) Memory {
	owners := maps.Clone(m.Owners)
	maps.DeleteFunc(owners, func(_ string, r calm.Record) bool { return r.Expired(now) })
	return Memory{Resizing: map[string]time.Time{}, Crowded: map[string]time.Time{}, Tries: map[string]Try{},
		Refused: map[string]map[string]amount.Resources{}, Owners: owners}
}

// Refuse records that the node of a pod can never grant these sizes.
func (m *Memory) Refuse(uid string, wanted []policy.Fitted) {
	if m.Refused == nil {
		m.Refused = map[string]map[string]amount.Resources{}
	}
	m.Refused[uid] = requests(wanted)
}

// Did records that an action was carried out at now.
func (m *Memory) Did(a Action, now time.Time) {
	if a.Owner == "" {
		return
	}
	m.keep(a.Owner, m.Owners[a.Owner].Changed(a.Change, a.Newest, now))
}

func (m *Memory) keep(owner string, r calm.Record) {
	if m.Owners == nil {
		m.Owners = map[string]calm.Record{}
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
func (m *Memory) Tried(a Action, now time.Time) {
	if m.Tries == nil {
		m.Tries = map[string]Try{}
	}
	try := Try{For: requests(a.Containers), Until: now}
	if before := m.Tries[a.UID]; maps.Equal(before.For, try.For) {
		try.Count = before.Count + 1
		try.Until = now.Add(min(firstPause<<min(try.Count-1, 10), longPause))
	}
	m.Tries[a.UID] = try
}

func requests(of []policy.Fitted) map[string]amount.Resources {
	all := make(map[string]amount.Resources, len(of))
	for _, f := range of {
		all[f.Name] = f.Requests
	}
	return all
}

// granted tells whether the pod has got what its node once refused.
func (m Memory) granted(p *Pod) bool {
	refused := m.Refused[p.UID]
	return p.Resize == NotResizing && !p.any(func(c *Container, k amount.Kind) bool {
		return c.Current.Requests.Value(k) < refused[c.Fitted.Name].Value(k)
	})
}

// refuses tells whether the node is known to refuse the targets of the pod. A
// lower target for any container gives it another chance.
func (m Memory) refuses(p *Pod) bool {
	refused, known := m.Refused[p.UID]
	return known && !p.any(func(c *Container, k amount.Kind) bool {
		was, had := refused[c.Fitted.Name].Get(k)
		target, has := c.Fitted.Requests.Get(k)
		return had && has && target < was
	})
}

// since is when the pod entered the present state of its resize.
func (m Memory) since(p *Pod, now time.Time) time.Time {
	if !p.ResizeSince.IsZero() {
		return p.ResizeSince
	}
	if first, known := m.Resizing[p.UID]; known {
		return first
	}
	return now
}
