package model

import (
	"cmp"
	"slices"

	"k8s.io/klog/v2"
)

const (
	// maxEndedHistories is the maximum number of histories of ended containers in a namespace,
	// unless twice as many containers run. Users could otherwise create any number with changing
	// labels and container names, and prevent their removal with a VPA.
	mostEnded = 10_000
	// labelUnit is the number of label bytes that weigh as much as one history.
	labelUnit = 512
	// maxBatchBytes limits the label keys of all key groups in a namespace.
	mostBatchBytes = 1 << 20
)

// endedHistory is the history of a container that no longer runs.
type ended struct {
	namedSeries

	set  *labelSet
	used int64 // instant of the last CPU sample, or of creation
	of   claim
	nth  int // position within its retention, latest first
}

// retention orders histories by how likely they are needed.
type claim struct {
	rank int    // higher ranks stay longer
	vpa  string // VPA that selects it, or did until its target was missing
}

const (
	stray   = iota // no VPA
	claimed        // of a VPA, or a fold target of running pods
)

// weight is the memory weight of one history of a label set with its labels and VPA links.
func (set *labelSet) weight() int { return 1 + len(set.text)/labelUnit + len(set.vpas)/MaxVPAs }

// countEnded counts histories that may have ended because a pod left the label set.
func (set *labelSet) leave(f *form) {
	if len(set.pods) > 0 && set.pods[0].form == f { // the usual case
		return
	}
	set.space.ended += len(f.containers) * set.weight()
}

// limitEnded drops the least recently used ended histories if a namespace has too many. Histories
// of VPAs go last, starting with the VPA that has the most.
func (m *Model) bound(s *space) {
	if s.ended <= max(s.most, mostEnded) {
		return
	}
	all, weight, running := m.ended(s)
	s.most, s.ended = max(mostEnded, 2*running), weight
	if weight <= s.most*7/8 { // avoids counting again soon
		return
	}
	if !s.crowded {
		s.crowded = true
		klog.Background().Info("Namespace keeps too many histories of containers that do not run any more: the oldest are dropped, first those of no VPA",
			"namespace", s.name, "histories", len(all), "most", s.most)
	}
	slices.SortFunc(all, func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.of.rank, b.of.rank), cmp.Compare(b.nth, a.nth), older(a, b))
	})
	dropped := map[*labelSet]struct{}{}
	for _, e := range all {
		if s.ended <= s.most*3/4 {
			break
		}
		if !m.config.Store.Drop(e.series) {
			continue
		}
		m.drop(e.series)
		s.ended -= e.set.weight()
		dropped[e.set] = struct{}{}
	}
	for set := range dropped {
		m.changed(set)
		m.abandon(set)
	}
}

// endedHistories returns the ended histories of a namespace, their weight, and the number of
// running containers.
func (m *Model) ended(s *space) (all []ended, weight, running int) {
	awaited := s.awaited()
	by := map[claim][]ended{}
	for _, set := range s.sets {
		runs := map[string]bool{}
		var last *form
		for _, p := range set.pods {
			running += len(p.containers)
			if p.form == last {
				continue
			}
			last = p.form
			for _, container := range p.containers {
				runs[container] = true
			}
		}
		e := ended{set: set, of: set.claim(awaited)}
		for _, n := range set.series {
			if runs[n.container] {
				continue
			}
			e.namedSeries, e.used = n, m.used(n)
			by[e.of] = append(by[e.of], e)
			weight += set.weight()
		}
	}
	for _, theirs := range by {
		slices.SortFunc(theirs, func(a, b ended) int { return -older(a, b) })
		for i := range theirs {
			theirs[i].nth = i
		}
		all = append(all, theirs...)
	}
	return all, weight, running
}

func (set *labelSet) claim(awaited map[string]bool) claim {
	switch {
	case len(set.vpas) > 0:
		return claim{claimed, set.vpas[0].Object.Name}
	case set.claimant != "" || awaited[set.plain()]:
		return claim{claimed, set.claimant}
	}
	return claim{}
}

func (m *Model) used(n namedSeries) int64 {
	if _, last, _ := m.config.Store.Span(n.series); !last.IsZero() {
		return last.UnixNano()
	}
	return m.config.Store.Created(n.series).UnixNano()
}

func older(a, b ended) int {
	return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.set.text, b.set.text), cmp.Compare(a.container, b.container))
}
