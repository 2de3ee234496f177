package model

import (
	"maps"
	"slices"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

// The load at the start covers the pods that exist then. A series that is created later lacks the usage
// from before, for example after a workload is created or scaled up from zero, or a container returns.
// A container of a VPA lacks history if all of its series do, so the new series of a rollout need no load.

// Backfill is the history that must be loaded for a VPA after the load at the start. The zero value is not
// decided yet.
type Backfill struct {
	Covered    bool               // by the load at the start or by a request
	Parts      sketch.Parts       // missing parts of the sketches of all containers
	Until      time.Time          // start of live usage in these parts
	Containers map[string]Missing // new containers; the map is replaced, never changed
}

// Missing is the history that a container lacks: the times up to which it must be loaded. A zero time is
// complete.
type Missing struct {
	Histogram time.Time
	Sketch    time.Time
}

// Pending reports whether any history must be loaded.
func (b *Backfill) Pending() bool { return b.Parts != 0 || len(b.Containers) > 0 }

// PendingFor reports whether history of a container must be loaded, and returns the start of its live
// usage.
func (b *Backfill) PendingFor(container string) (from time.Time, pending bool) {
	if b.Parts != 0 {
		from, pending = b.Until, true
	}
	if missing, found := b.Containers[container]; found {
		pending = true
		for _, until := range []time.Time{missing.Histogram, missing.Sketch} {
			if until.After(from) {
				from = until
			}
		}
	}
	return from, pending
}

// AddParts adds missing parts of the sketches of all containers.
func (b *Backfill) AddParts(parts sketch.Parts, now time.Time) {
	if parts == 0 {
		return
	}
	if b.Parts == 0 {
		b.Until = now
	}
	b.Parts |= parts
}

// maxMissing is the maximum number of containers of a VPA that wait for history. The others get none.
const maxMissing = 100

// SetMissing sets the missing history of some containers. The zero value removes a container.
func (b *Backfill) SetMissing(changes map[string]Missing) {
	if len(changes) == 0 {
		return
	}
	containers := maps.Clone(b.Containers)
	if containers == nil {
		containers = map[string]Missing{}
	}
	for _, container := range slices.Sorted(maps.Keys(changes)) {
		missing, known := changes[container], containers[container] != Missing{}
		switch {
		case missing == Missing{}:
			delete(containers, container)
		case known || len(containers) < maxMissing:
			containers[container] = missing
		}
	}
	b.Containers = containers
}

// SketchParts returns the missing parts of the sketch of a container.
func (b *Backfill) SketchParts(container string) sketch.Parts {
	if !b.Containers[container].Sketch.IsZero() {
		return sketch.AllParts
	}
	return b.Parts
}

// BeginLate marks the series that the load at the start does not cover as series that lack history. Series
// that are created after the first call are marked as well. Later calls have no effect.
func (m *Model) BeginLate(covered func(namespace, pod string, vpas []*VPA) bool) {
	if m.late {
		return
	}
	m.late = true
	for _, s := range m.spaces {
		for _, set := range s.sets {
			if len(set.pods) == 0 || slices.ContainsFunc(set.pods, func(p *pod) bool { return covered(s.name, p.name, set.vpas) }) {
				continue
			}
			for i := range set.series {
				set.series[i].missing = true
			}
		}
	}
}

// lacksHistory reports whether a series of a label set lacks history.
func (set *labelSet) lacksHistory(series usage.Series) bool {
	n := set.find(series)
	return n != nil && n.missing
}

// await decides whether published containers count as containers with history before their pods appear.
// A VPA can reach the model before its pods, or be scaled to zero, and history is loaded when a pod
// appears. Without this, its target would be withdrawn and then follow the first samples. It ends when
// the history has expired.
func (v *VPA) await(now time.Time) {
	if v.model == nil {
		return
	}
	c := &v.model.config
	if awaiting := c.Backfills && now.Sub(v.added) < c.Store.Rules().Age(); awaiting != v.awaiting {
		v.awaiting = awaiting
		v.Invalidate()
	}
}

// awaited returns the published containers of the VPA if they may have history.
func (v *VPA) awaited() []vpav1.RecommendedContainerResources {
	if r := v.Object.Status.Recommendation; v.awaiting && r != nil && !v.StatusOfOther() {
		return r.ContainerRecommendations
	}
	return nil
}

// NewContainers returns the containers with series that the VPA did not have at the last call, sorted.
func (v *VPA) NewContainers() (names []string) {
	if v.listed == v.structure && v.structure != 0 {
		return nil
	}
	current := v.Containers()
	for _, name := range current {
		if _, known := slices.BinarySearch(v.known, name); !known {
			names = append(names, name)
		}
	}
	v.listed, v.known = v.structure, current
	return names
}

// MissingHistory reports whether all series of a container lack history, and returns the creation time of
// the oldest.
func (v *VPA) MissingHistory(container string) (since time.Time, missing bool) {
	for _, series := range v.Series(container) {
		if !v.model.places[series].set.lacksHistory(series) {
			return time.Time{}, false
		}
		if created := v.model.config.Store.Created(series); !missing || created.Before(since) {
			since, missing = created, true
		}
	}
	return since, missing
}

// MarkLoaded marks all series of a container as series with history.
func (v *VPA) MarkLoaded(container string) {
	for _, series := range v.Series(container) {
		v.model.places[series].set.find(series).missing = false
	}
}
