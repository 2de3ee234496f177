package model

import (
	"cmp"
	"slices"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

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

// former returns the label set of what a target selected before.
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

// linkFormer links a VPA with what its target selected before.
func (m *Model) linkFormer(s *space, v *VPA) {
	set := s.sets[formerText(v.target)]
	if set == nil || v.selector == nil {
		return
	}
	if _, linked := v.sets[set]; !linked {
		m.link(v, set)
	}
}
