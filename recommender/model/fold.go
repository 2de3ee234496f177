package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/usage"
)

// volatile are the labels that controllers give to pods of one generation, or to
// one pod, and that the pods which replace them do not have.
var volatile = []string{
	"pod-template-hash", "controller-revision-hash", "controller-uid", "job-name",
	"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index",
	"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
}

// retire folds the histories of a label set that no pod has any more into those
// of the same labels without the volatile ones, so that rollouts and finished
// Jobs leave nothing behind, and then without those that the namespace knows as
// labels of single runs.
func (m *Model) retire(set *labelSet) {
	switch {
	case len(set.pods) > 0:
	case len(set.series) == 0:
		m.abandon(set)
	default:
		if into := m.fold(set, volatile); into != nil {
			m.retire(into)
		} else {
			m.retireRun(set)
		}
	}
}

// fold folds the histories of a label set into those of the same labels without
// some keys, and returns the label set of these. It does nothing and returns nil if
// there is no such label, or if a VPA selects only one of the two: it would lose a
// history, or get one that is not its own.
func (m *Model) fold(set *labelSet, without []string) *labelSet {
	lasting := set.labels.without(without)
	if len(lasting) == len(set.labels) || !m.selectBoth(set, lasting) {
		return nil
	}
	into := m.set(set.space, lasting, set.owner)
	into.claimant = cmp.Or(into.claimant, set.claimant)
	for _, n := range slices.Clone(set.series) {
		series, ok := m.config.Store.Fold(n.series, usage.SeriesKey{Namespace: set.space.name, Container: n.container, Labels: into.text})
		if !ok {
			continue
		}
		m.drop(n.series)
		m.join(into, n, series)
	}
	m.changed(set)
	m.changed(into)
	m.abandon(set)
	return into
}

// join adds a series that took over the history of another series to a label set. It lacks history only if
// both did.
func (m *Model) join(into *labelSet, from namedSeries, series usage.Series) {
	if own := into.find(series); own != nil {
		own.missing = own.missing && from.missing
		return
	}
	m.adopt(into, from.container, series, from.missing)
}

// selectBoth reports whether each VPA of a namespace selects a label set and other
// labels, or neither.
func (m *Model) selectBoth(set *labelSet, other labels.Set) bool {
	both, one := 0, false
	set.space.selectors.matching(newList(slices.Sorted(maps.Keys(other)), other, other.String()), func(v *VPA) {
		if _, linked := v.sets[set]; linked {
			both++
		} else if set.space.owns(v, set) {
			one = true
		}
	})
	return !one && both == len(set.vpas)
}

// Absorb adds the histories of another model, which it only reads and whose store
// has the same shape: those of pods that are gone, and of those that run. Where
// both had a window open for a container, the higher peak counts. The time is
// that of series that begin with it.
//
// Series that lack history are skipped, see BeginLate.
func (m *Model) Absorb(other *Model, now time.Time) { m.absorbAll(other, nil, now) }

// AbsorbMissing is Absorb for series that lack history and for series that this model does not have. It
// takes the containers of VPAs for which include returns true.
func (m *Model) AbsorbMissing(other *Model, include func(v *VPA, container string) bool, now time.Time) {
	m.absorbAll(other, include, now)
}

// absorbAll adds the histories of another model. A nil include selects the series that the load at the start
// covers.
func (m *Model) absorbAll(other *Model, include func(v *VPA, container string) bool, now time.Time) {
	spaces := slices.SortedFunc(maps.Values(other.spaces), func(a, b *space) int { return cmp.Compare(a.name, b.name) })
	for _, theirs := range spaces {
		for _, text := range slices.Sorted(maps.Keys(theirs.sets)) {
			s := m.space(theirs.name) // a new one where that before was left with nothing
			if theirs.sets[text].former {
				continue
			}
			m.absorb(m.set(s, theirs.sets[text].labels.without(nil), theirs.sets[text].owner), other, theirs.sets[text].series, include, now)
			m.bound(s)
		}
	}
}

func (m *Model) absorb(set *labelSet, other *Model, histories []namedSeries, include func(*VPA, string) bool, now time.Time) {
	if !m.config.MemorySaver || len(set.vpas) > 0 {
		for _, n := range histories {
			known, found := m.config.Store.Find(usage.SeriesKey{Namespace: set.space.name, Container: n.container, Labels: set.text})
			if found && set.lacksHistory(known) == (include == nil) {
				continue
			}
			if include != nil && !slices.ContainsFunc(set.vpas, func(v *VPA) bool { return include(v, n.container) }) {
				continue
			}
			series := m.config.Store.Absorb(other.config.Store, n.series, now)
			if !set.has(series) {
				m.adopt(set, n.container, series, include != nil) // later chunks may follow
			}
		}
		m.changed(set)
		set.space.ended += len(histories) * set.weight()
	}
	m.retire(set)
}
