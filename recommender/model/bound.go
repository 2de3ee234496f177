package model

import (
	"cmp"
	"slices"

	"k8s.io/klog/v2"
)

const (
	// mostEnded is how many histories of containers that do not run any more a namespace keeps at most; more only where
	// twice as many containers run. Anybody who may create pods can have a history for each of them, by labels and
	// names of containers that do not come back, and prevent by a VPA that they are folded or swept.
	mostEnded = 10_000
	// labelUnit is how many bytes of labels count like one history more.
	labelUnit = 512
	// mostBatchBytes is how much text of label keys a namespace keeps batches for.
	mostBatchBytes = 1 << 20
)

// ended is a history of a container that does not run any more.
type ended struct {
	namedSeries

	set  *labelSet
	used int64 // instant of the last CPU sample; without any, when the history began
	of   claim
	nth  int // of those of the same claim, the latest first
}

// claim is why a history may be needed.
type claim struct {
	rank int    // higher ones stay longer
	vpa  string // name of the VPA that selects it, or did until its target was missing
}

// Ranks of histories.
const (
	stray   = iota // of nobody
	claimed        // of a VPA, or pods will be folded into them
)

// weight is the weight of a history of a label set. Each link with a VPA takes memory, too.
func (set *labelSet) weight() int { return 1 + len(set.text)/labelUnit + len(set.vpas)/MaxVPAs }

// leave counts histories of which one pod less of a label set has the containers.
func (set *labelSet) leave(f *form) {
	if len(set.pods) > 0 && set.pods[0].form == f { // nearly always
		return
	}
	set.space.ended += len(f.containers) * set.weight()
}

// bound drops the histories of a namespace that were not used for longest when too many containers of it are gone.
// Those of VPAs come last, and of these first those of the VPA that has most.
func (m *Model) bound(s *space) {
	if s.ended <= max(s.most, mostEnded) {
		return
	}
	all, weight, running := m.ended(s)
	s.most, s.ended = max(mostEnded, 2*running), weight
	if weight <= s.most*7/8 { // so that it is not counted again soon
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

// ended returns the histories of containers of a namespace that do not run any more,
// what they weigh together, and how many containers run.
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

// claim returns that of the histories of a label set, given the texts of those that pods will be folded into.
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
