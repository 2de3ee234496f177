package model

import (
	"cmp"
	"maps"
	"slices"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// ResumeWindows restores the open windows of a saved history. Call it after VPAs and pods are
// loaded and before the first sample. An existing pod continues its window. The peak of a deleted
// pod goes to the history of its VPA. Every window counts once, even after several restarts before
// the next checkpoint.
func ResumeWindows(h checkpoint.History, store *usage.Store, model *Model) {
	resumed := latestWindows(h, store)
	for _, key := range slices.SortedFunc(maps.Keys(resumed), compareKeys) {
		if w := resumed[key]; !store.RestoreWindow(key, w) && w.Peak() >= 0 {
			delete(resumed, key) // the container already has a window
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
				// A VPA with an unreadable target may select the pod again.
				series, tracked := store.SeriesOf(key)
				lives := tracked && (v.TargetError != nil || slices.Contains(v.Series(container), series))
				open, goesOn := resumed[key]
				if w.Peak() >= 0 && (!lives || !goesOn || !open.End.Equal(w.End)) {
					past.Profile.AddPeak(float64(w.Peak()), w.End)
				}
			}
		}
	}
}

// latestWindows returns the windows of tracked pods. VPAs of the same pod may have been saved at
// different times, so the later window counts, and of equal windows the highest values.
func latestWindows(h checkpoint.History, store *usage.Store) map[usage.ContainerKey]usage.Window {
	found := map[usage.ContainerKey]usage.Window{}
	for owner, containers := range h {
		for container, past := range containers {
			for pod, w := range past.Windows {
				key := usage.ContainerKey{Namespace: owner.Namespace, Pod: pod, Container: container}
				if _, tracked := store.SeriesOf(key); !tracked {
					continue
				}
				if other, twice := found[key]; twice {
					w = mergeWindows(w, other)
				}
				found[key] = w
			}
		}
	}
	return found
}

func mergeWindows(a, b usage.Window) usage.Window {
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
		a.Kills = laterKills(a.Kills, b.Kills)
	}
	return a
}

// laterKills returns the list that continues from the head of the other, else the longer one.
func laterKills(a, b []uint64) []uint64 {
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

// A target may select other pods with each release, for example if its selector contains the color
// of a blue/green deployment. The target retains the history of its earlier pods in a former label
// set without pods, which is linked with all VPAs of the target and matches no selector.

// formerText names the former label set of a target. Label texts never equal it.
func formerText(of target.Key) string { return "formerly selected by " + of.String() }

// moveToFormer moves histories to the former set of v's target. Sets that a VPA selects stay.
func (m *Model) moveToFormer(s *namespaceState, v *VPA, left []*labelSet) {
	slices.SortFunc(left, func(a, b *labelSet) int { return cmp.Compare(a.text, b.text) })
	for _, set := range left {
		if len(set.vpas) > 0 {
			continue
		}
		into := m.formerSet(s, v.target)
		for _, n := range slices.Clone(set.series) {
			series := m.config.Store.MoveHistory(n.series, usage.SeriesKey{Namespace: s.name, Container: n.container, Labels: into.text})
			m.join(into, n, series)
			if m.config.Store.DropSeries(n.series) {
				m.removeSeries(n.series)
			}
		}
		m.seriesChanged(into)
		m.dropEmptySet(set)
		m.dropEmptySet(into)
	}
}

func (m *Model) formerSet(s *namespaceState, of target.Key) *labelSet {
	text := formerText(of)
	set := s.sets[text]
	if set == nil {
		set = &labelSet{namespace: s, text: text, former: true}
		s.sets[text] = set
		for _, v := range s.vpas {
			m.linkFormer(s, v)
		}
	}
	return set
}

func (m *Model) linkFormer(s *namespaceState, v *VPA) {
	set := s.sets[formerText(v.target)]
	if set == nil || v.selector == nil {
		return
	}
	if _, linked := v.sets[set]; !linked {
		m.link(v, set)
	}
}
