package checkpoints

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// Scope says which of the VPAs that changed are saved.
type Scope int

// The scopes.
const (
	Urgent Scope = iota // those whose loss would lower a published target
	Due                 // and those whose time has come
	All                 // and all others
)

// saveState is what a Saver knows of one VPA.
type saveState struct {
	vpa          *model.VPA
	id           int                       // from 1
	first        bool                      // the VPA was there in the first Save, and got what was restored
	phase        time.Duration             // of its time within the interval
	revision     uint64                    // that was saved
	targets      map[string]resources.List // uncapped, by container, that what was saved gives
	historySince time.Time                 // since when it has history; zero = since before the start
	lastTried    time.Time                 // when it last was tried, or was first seen
	saved        bool                      // by this process
	failed       bool                      // the last time
	urgent       bool                      // in this Save
}

func (t *saveState) owner() checkpoint.Owner {
	return checkpoint.Owner{Namespace: t.vpa.Object.Namespace, VPA: t.vpa.Object.Name}
}

func (t *saveState) done(revision uint64, targets map[string]resources.List) {
	t.revision, t.targets, t.saved, t.failed = revision, targets, true, false
}

// plan fills the queue with the VPAs to be saved, in order, and returns how many
// of them are urgent. It allocates nothing for a VPA that did not change.
func (s *Saver) plan(vpas []*model.VPA, scope Scope, now time.Time) (urgent int) {
	s.queue = s.queue[:0]
	for _, v := range vpas {
		t := s.state(v, now)
		if !t.changed() {
			continue
		}
		// One that failed waits like all others: what cannot be written, perhaps for
		// ever, must not take the time of what can.
		t.urgent = !t.failed && t.wouldFallInCrash()
		if t.urgent || scope == All || scope == Due && t.due(s.Interval, now) {
			s.queue = append(s.queue, t)
		}
		if t.urgent {
			urgent++
		}
	}
	s.prune(vpas)
	slices.SortFunc(s.queue, (*saveState).before)
	return urgent
}

// state returns that of a VPA.
func (s *Saver) state(v *model.VPA, now time.Time) *saveState {
	t := s.states[v]
	if t == nil {
		t = newSaveState(v, s.Interval, now)
		s.lastID++
		t.id, t.first = s.lastID, s.saves == 0
		s.states[v] = t
	}
	return t
}

// changed reports whether there is anything to save. While the target of a VPA cannot be
// used there is not: we may see less than there is.
func (t *saveState) changed() bool {
	clean := t.saved && !t.failed && t.revision == t.vpa.Revision()
	return !clean && t.vpa.TargetError == nil && !status.FetchingHistory(t.vpa.Object)
}

func newSaveState(v *model.VPA, interval time.Duration, now time.Time) *saveState {
	t := &saveState{vpa: v, lastTried: now, historySince: now}
	if interval > 0 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(v.Object.Namespace + "/" + v.Object.Name)) // a hash never fails
		t.phase = time.Duration(h.Sum64() % uint64(interval))
	}
	if len(v.Restored) > 0 {
		t.historySince = time.Time{}
	}
	// What was restored is in a checkpoint, and what was published then came from it,
	// unless the status says that there was more.
	if status.Holds(v.Object, status.TargetUnsaved) || status.Holds(v.Object, status.TargetHeld) {
		return t
	}
	t.targets = make(map[string]resources.List, len(v.Restored))
	published := published(v)
	for container := range v.Restored {
		t.targets[container] = published[container]
	}
	return t
}

// published returns the targets in the status of a VPA, before capping as far as
// it tells.
func published(v *model.VPA) map[string]resources.List {
	if v.Object.Status.Recommendation == nil {
		return nil
	}
	targets := map[string]resources.List{}
	for _, c := range v.Object.Status.Recommendation.ContainerRecommendations {
		target := c.UncappedTarget
		if target == nil {
			target = c.Target
		}
		targets[c.ContainerName] = convert.Resources(target)
	}
	return targets
}

// A target that is higher by less than these factors counts as the same. The CPU target of a
// container with steady usage goes up and down by one bucket; that of memory moves only
// where the margin of a recipe does.
const cpuTolerance, memoryTolerance = 1.08, 1.02

// wouldFallInCrash reports whether a published target would be lower after a crash,
// because the history that raised it is not saved yet. A held target does not rest on that
// history.
func (t *saveState) wouldFallInCrash() bool {
	memory := 1.0
	if t.vpa.Sketches != nil {
		memory = memoryTolerance
	}
	for container, now := range t.vpa.Uncapped {
		saved, kept := t.targets[container], t.vpa.HeldKinds[container]
		if !kept[resources.Memory] && now.Value(resources.Memory) > saved.Value(resources.Memory).Scale(memory) ||
			!kept[resources.CPU] && now.Value(resources.CPU) > saved.Value(resources.CPU).Scale(cpuTolerance) {
			return true
		}
	}
	return false
}

// targetsFromHistory returns the targets, before capping, that the history of a VPA leads
// to: all but those that are held.
func targetsFromHistory(v *model.VPA) map[string]resources.List {
	if len(v.HeldKinds) == 0 {
		return v.Uncapped
	}
	targets := maps.Clone(v.Uncapped)
	for container, target := range targets {
		for k, kept := range v.HeldKinds[container] {
			if kept {
				target = target.Without(resources.Kind(k))
			}
		}
		targets[container] = target
	}
	return targets
}

// noteUnsaved notes on the VPA, for its condition TargetUnsaved, that the last save failed
// and a crash would lower a target.
func (t *saveState) noteUnsaved() { t.vpa.Unsaved = t.failed && t.wouldFallInCrash() }

// youngParts: while a history is younger than so many intervals, it is saved as soon as
// one of so many parts of it is not.
const youngParts = 4

// firstWriteWithin is the time within which a VPA is first written after a start: whoever
// looks at checkpoints to see whether a recommender works does not wait for an interval.
const firstWriteWithin = 4 * time.Minute

// due reports whether it is time for a VPA that is not urgent. Each is written at an offset
// of its own within the interval, and the first time within a shorter one.
func (t *saveState) due(interval time.Duration, now time.Time) bool {
	if interval <= 0 || t.failed {
		return true
	}
	if age := now.Sub(t.historySince); !t.historySince.IsZero() && age < youngParts*interval && now.Sub(t.lastTried) >= age/youngParts {
		return true
	}
	if !t.saved && now.Sub(t.lastTried) >= t.phase%min(interval, firstWriteWithin) {
		return true
	}
	slot := func(at time.Time) int64 { return at.Add(-t.phase).UnixNano() / int64(interval) }
	return slot(now) != slot(t.lastTried)
}

// before puts urgent VPAs first, then the longest waiting.
func (t *saveState) before(o *saveState) int {
	if t.urgent != o.urgent {
		if t.urgent {
			return -1
		}
		return 1
	}
	return cmp.Or(
		t.lastTried.Compare(o.lastTried),
		cmp.Compare(t.vpa.Object.Namespace, o.vpa.Object.Namespace),
		cmp.Compare(t.vpa.Object.Name, o.vpa.Object.Name),
	)
}

// prune forgets VPAs that are gone.
func (s *Saver) prune(vpas []*model.VPA) {
	if len(s.states) <= len(vpas) {
		return
	}
	present := make(map[*model.VPA]bool, len(vpas))
	for _, v := range vpas {
		present[v] = true
	}
	for v := range s.states {
		if !present[v] {
			delete(s.states, v)
		}
	}
}
