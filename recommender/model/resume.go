package model

import (
	"cmp"
	"maps"
	"slices"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// ResumeWindows puts back the windows that were open when the history was written, once the VPAs and pods of the model
// are known and before the first sample. A pod that still is there goes on with its window; the peak of one that is
// gone is final and goes to the history of its VPA. Every window counts once, however often this happens before the
// next checkpoint is written.
func ResumeWindows(h checkpoint.History, store *usage.Store, model *Model) {
	resumed := latest(h, store)
	for _, key := range slices.SortedFunc(maps.Keys(resumed), compareKeys) {
		if w := resumed[key]; !store.Resume(key, w) && w.Peak() >= 0 {
			delete(resumed, key) // the container has a window of its own
		}
	}
	for owner, containers := range h {
		v := model.Find(owner.Namespace, owner.VPA)
		if v == nil {
			continue
		}
		for container, past := range containers {
			for _, pod := range slices.Sorted(maps.Keys(past.Windows)) {
				w := past.Windows[pod]
				key := usage.ContainerKey{Namespace: owner.Namespace, Pod: pod, Container: container}
				// A VPA whose target cannot be read may select the pod again.
				series, tracked := store.Tracked(key)
				lives := tracked && (v.TargetError != nil || slices.Contains(v.Series(container), series))
				open, goesOn := resumed[key]
				if w.Peak() >= 0 && (!lives || !goesOn || !open.End.Equal(w.End)) {
					past.Profile.AddPeak(float64(w.Peak()), w.End)
				}
			}
		}
	}
}

// latest returns the windows of pods that are tracked. VPAs that select the same pod may have written at different
// times: the later window counts, and of the same window the highest that is known.
func latest(h checkpoint.History, store *usage.Store) map[usage.ContainerKey]usage.Window {
	found := map[usage.ContainerKey]usage.Window{}
	for owner, containers := range h {
		for container, past := range containers {
			for pod, w := range past.Windows {
				key := usage.ContainerKey{Namespace: owner.Namespace, Pod: pod, Container: container}
				if _, tracked := store.Tracked(key); !tracked {
					continue
				}
				if other, twice := found[key]; twice {
					w = merge(w, other)
				}
				found[key] = w
			}
		}
	}
	return found
}

func merge(a, b usage.Window) usage.Window {
	if a.End.Before(b.End) {
		a, b = b, a
	}
	if a.End.Equal(b.End) {
		a.Usage, a.OOM = max(a.Usage, b.Usage), max(a.OOM, b.OOM)
	}
	switch b.Kill.Compare(a.Kill) {
	case 1:
		a.Kill, a.Kills = b.Kill, b.Kills
	case 0:
		a.Kills = later(a.Kills, b.Kills)
	}
	return a
}

// later returns that of two lists of kills which was written later: it goes on from
// the head of the other or, where that does not tell, is the longer one.
func later(a, b []uint64) []uint64 {
	if len(a) > 0 && len(b) > 0 {
		switch onB, onA := slices.Contains(a, b[0]), slices.Contains(b, a[0]); {
		case onB && !onA:
			return a
		case onA && !onB:
			return b
		}
	}
	if cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b)) >= 0 {
		return a
	}
	return b
}

func compareKeys(a, b usage.ContainerKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
}

// A target may select other pods with each release, as where the color of a blue/green deployment
// is part of the selector. Owner and containers are the same, so the history of the pods that are
// no longer selected stays that of the target: it moves to a label set without pods, which all VPAs
// of the target are linked with, and which no selector matches.

// formerText names the label set of a target. Labels never give such a text.
func formerText(of target.Key) string { return "formerly selected by " + of.String() }

// keepFormer moves the histories of label sets that a VPA no longer selects, since its selector
// changed, to those of its target. Sets that another VPA selects stay.
func (m *Model) keepFormer(s *space, v *VPA, left []*labelSet) {
	slices.SortFunc(left, func(a, b *labelSet) int { return cmp.Compare(a.text, b.text) })
	for _, set := range left {
		if len(set.vpas) > 0 {
			continue
		}
		into := m.former(s, v.target)
		for _, n := range slices.Clone(set.series) {
			series := m.config.Store.Move(n.series, usage.SeriesKey{Namespace: s.name, Container: n.container, Labels: into.text})
			m.join(into, n, series)
			if m.config.Store.Drop(n.series) {
				m.drop(n.series)
			}
		}
		m.changed(into)
		m.abandon(set)
		m.abandon(into)
	}
}

func (m *Model) former(s *space, of target.Key) *labelSet {
	text := formerText(of)
	set := s.sets[text]
	if set == nil {
		set = &labelSet{space: s, text: text, former: true}
		s.sets[text] = set
		for _, v := range s.vpas {
			m.linkFormer(s, v)
		}
	}
	return set
}

func (m *Model) linkFormer(s *space, v *VPA) {
	set := s.sets[formerText(v.target)]
	if set == nil || v.selector == nil {
		return
	}
	if _, linked := v.sets[set]; !linked {
		m.link(v, set)
	}
}
