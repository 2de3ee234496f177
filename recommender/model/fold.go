package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

// volatile lists labels that replacement pods do not have.
var volatile = []string{
	"pod-template-hash", "controller-revision-hash", "controller-uid", "job-name",
	"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index",
	"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
}

// retire folds the histories of a label set without pods into the set without volatile labels, then
// without run labels, so that rollouts and finished Jobs leave nothing behind.
func (m *Model) retire(set *labelSet) {
	switch {
	case len(set.pods) > 0:
	case len(set.series) == 0:
		m.dropEmptySet(set)
	default:
		if into := m.fold(set, volatile); into != nil {
			m.retire(into)
		} else {
			m.foldRun(set)
		}
	}
}

// fold moves the histories of a label set into the set without some keys. It returns nil without a
// change if there are no such keys, or if a VPA selects only one of the two sets and would lose or
// gain history.
func (m *Model) fold(set *labelSet, without []string) *labelSet {
	lasting := set.labels.without(without)
	if len(lasting) == len(set.labels) || !m.selectBoth(set, lasting) {
		return nil
	}
	into := m.labelSetFor(set.namespace, lasting, set.owner)
	into.lastVPA = cmp.Or(into.lastVPA, set.lastVPA)
	for _, n := range slices.Clone(set.series) {
		series, ok := m.config.Store.Rekey(n.series, usage.SeriesKey{Namespace: set.namespace.name, Container: n.container, Labels: into.text})
		if !ok {
			continue
		}
		m.removeSeries(n.series)
		m.join(into, n, series)
	}
	m.seriesChanged(set)
	m.seriesChanged(into)
	m.dropEmptySet(set)
	return into
}

// join adds a series with the history of another one. It lacks history only if both did.
func (m *Model) join(into *labelSet, from namedSeries, series usage.Series) {
	if own := into.find(series); own != nil {
		own.missing = own.missing && from.missing
		return
	}
	m.addSeries(into, from.container, series, from.missing)
}

// selectBoth reports whether each VPA selects both a label set and other labels, or neither.
func (m *Model) selectBoth(set *labelSet, other labels.Set) bool {
	both, one := 0, false
	set.namespace.selectors.matching(newLabelList(slices.Sorted(maps.Keys(other)), other, other.String()), func(v *VPA) {
		if _, linked := v.sets[set]; linked {
			both++
		} else if set.namespace.owns(v, set) {
			one = true
		}
	})
	return !one && both == len(set.vpas)
}

// Absorb adds the histories of another model, which is only read and must have the same store
// shape. Of two open windows of a container, the higher peak counts. New series start at now.
// Series that lack history are skipped, see BeginLate.
func (m *Model) Absorb(other *Model, now time.Time) { m.AbsorbMissing(other, nil, now) }

// AbsorbMissing is Absorb for series that lack history or are new, of the containers that include
// selects. A nil include selects the series that the load at the start covers.
func (m *Model) AbsorbMissing(other *Model, include func(v *VPA, container string) bool, now time.Time) {
	spaces := slices.SortedFunc(maps.Values(other.namespaces), func(a, b *namespaceState) int { return cmp.Compare(a.name, b.name) })
	for _, theirs := range spaces {
		for _, text := range slices.Sorted(maps.Keys(theirs.sets)) {
			s := m.namespaceState(theirs.name) // created again if the previous set emptied it
			if theirs.sets[text].former {
				continue
			}
			m.absorb(m.labelSetFor(s, theirs.sets[text].labels.without(nil), theirs.sets[text].owner), other, theirs.sets[text].series, include, now)
			m.limitEnded(s)
		}
	}
}

func (m *Model) absorb(set *labelSet, other *Model, histories []namedSeries, include func(*VPA, string) bool, now time.Time) {
	if !m.config.MemorySaver || len(set.vpas) > 0 {
		for _, n := range histories {
			known, found := m.config.Store.Find(usage.SeriesKey{Namespace: set.namespace.name, Container: n.container, Labels: set.text})
			if found && set.lacksHistory(known) == (include == nil) {
				continue
			}
			if include != nil && !slices.ContainsFunc(set.vpas, func(v *VPA) bool { return include(v, n.container) }) {
				continue
			}
			series := m.config.Store.Import(other.config.Store, n.series, now)
			if set.find(series) == nil {
				m.addSeries(set, n.container, series, include != nil) // later chunks may follow
			}
		}
		m.seriesChanged(set)
		set.namespace.endedWeight += len(histories) * set.weight()
	}
	m.retire(set)
}

// The load at the start covers the pods that exist then. A later series lacks earlier usage, for
// example after a workload is created or scaled up from zero. A container lacks history if all of
// its series do, so the new series of a rollout need no load.

// Backfill is the history to load for a VPA after the start. Its zero value means not decided yet.
type Backfill struct {
	Covered    bool               // by the first load or by a request
	Parts      sketch.Parts       // missing parts of the sketches of all containers
	Until      time.Time          // start of live usage in these parts
	Containers map[string]Missing // new containers, replaced as a whole
}

// Missing holds the times up to which history of a container must be loaded, zero: complete.
type Missing struct {
	Histogram time.Time
	Sketch    time.Time
}

// Pending reports whether any history must be loaded.
func (b *Backfill) Pending() bool { return b.Parts != 0 || len(b.Containers) > 0 }

// PendingFor reports whether history of a container is pending, and the start of its live usage.
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

// maxMissing is the maximum number of containers of a VPA that wait for history.
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

// BeginLate marks the series that the load at the start does not cover, and all series created
// later, as lacking history. Only the first call has an effect.
func (m *Model) BeginLate(covered func(namespace, pod string, vpas []*VPA) bool) {
	if m.marksNewSeries {
		return
	}
	m.marksNewSeries = true
	for _, s := range m.namespaces {
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

func (set *labelSet) lacksHistory(series usage.Series) bool {
	n := set.find(series)
	return n != nil && n.missing
}

// updateExpectation decides whether published containers count as containers with history before
// their pods appear. A VPA can precede its pods or be scaled to zero. Its target would otherwise be
// withdrawn and then follow the first samples.
func (v *VPA) updateExpectation(now time.Time) {
	if v.model == nil {
		return
	}
	c := &v.model.config
	if awaiting := c.Backfills && now.Sub(v.added) < c.Store.Rules().Age(); awaiting != v.expectsHistory {
		v.expectsHistory = awaiting
		v.Invalidate()
	}
}

func (v *VPA) expectedContainers() []vpav1.RecommendedContainerResources {
	if r := v.Object.Status.Recommendation; v.expectsHistory && r != nil && !v.StatusOfOther() {
		return r.ContainerRecommendations
	}
	return nil
}

// NewContainers returns the containers with series that are new since the last call, sorted.
func (v *VPA) NewContainers() (names []string) {
	if v.listedStructure == v.structure && v.structure != 0 {
		return nil
	}
	current := v.Containers()
	for _, name := range current {
		if _, known := slices.BinarySearch(v.listedContainers, name); !known {
			names = append(names, name)
		}
	}
	v.listedStructure, v.listedContainers = v.structure, current
	return names
}

// MissingHistory reports whether all series of a container lack history, and since when.
func (v *VPA) MissingHistory(container string) (since time.Time, missing bool) {
	for _, series := range v.Series(container) {
		if !v.model.seriesLocations[series].set.lacksHistory(series) {
			return time.Time{}, false
		}
		if created := v.model.config.Store.CreatedAt(series); !missing || created.Before(since) {
			since, missing = created, true
		}
	}
	return since, missing
}

// MarkLoaded marks all series of a container as complete.
func (v *VPA) MarkLoaded(container string) {
	for _, series := range v.Series(container) {
		v.model.seriesLocations[series].set.find(series).missing = false
	}
}
