package model

import (
	"maps"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

// History from Prometheus is loaded at the start for the pods of that time. A series that begins later,
// as where a workload is created, scaled up from zero or brings back a container, lacks the usage from
// before. What a VPA lacks depends on all series of a container: one that has history is enough, so
// a rollout, which begins new series, lacks nothing.

// Backfill is the history that is still to be loaded for a VPA after the load at the start. The zero
// value: not decided yet.
type Backfill struct {
	Covered    bool               // by the load at the start or by a request
	Parts      sketch.Parts       // of the sketches of all containers that are missing
	Until      time.Time          // live usage counts in these from here on
	Containers map[string]Missing // that came later; replaced, never changed
}

// Missing is the history that a container lacks: until when it is loaded. Zero: it is not missing.
type Missing struct {
	Histogram time.Time
	Sketch    time.Time
}

// Pending reports whether history is still to be loaded.
func (b *Backfill) Pending() bool { return b.Parts != 0 || len(b.Containers) > 0 }

// PendingFor reports whether history of a container is still to be loaded, and from when on its live usage
// counts.
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

// Request adds parts of the sketches of all containers to what is to be loaded.
func (b *Backfill) Request(parts sketch.Parts, now time.Time) {
	if parts == 0 {
		return
	}
	if b.Parts == 0 {
		b.Until = now
	}
	b.Parts |= parts
}

// maxMissing is how many containers of a VPA wait for history at most. The others go on without.
const maxMissing = 100

// Require changes what is to be loaded of some containers. The zero value: nothing any more.
func (b *Backfill) Require(changes map[string]Missing) {
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

// SketchParts returns the parts of the sketch of a container that are to be loaded.
func (b *Backfill) SketchParts(container string) sketch.Parts {
	if !b.Containers[container].Sketch.IsZero() {
		return sketch.AllParts
	}
	return b.Parts
}

// BeginLate marks the series that lack history from now on: those of pods that the load at the start
// did not cover, and all that begin later. It does so once.
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

// isMissing reports whether a series of a label set lacks history.
func (set *labelSet) isMissing(series usage.Series) bool {
	n := set.named(series)
	return n != nil && n.missing
}

// NewContainers returns the containers with history that the VPA did not have in the last call, sorted.
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

// MissingHistory reports whether all series of a container lack history, and since when the oldest exists.
func (v *VPA) MissingHistory(container string) (since time.Time, missing bool) {
	for _, series := range v.Series(container) {
		if !v.model.places[series].set.isMissing(series) {
			return time.Time{}, false
		}
		if created := v.model.config.Store.Created(series); !missing || created.Before(since) {
			since, missing = created, true
		}
	}
	return since, missing
}

// LoadedHistory notes that no series of a container lacks history any more.
func (v *VPA) LoadedHistory(container string) {
	for _, series := range v.Series(container) {
		v.model.places[series].set.named(series).missing = false
	}
}
