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
	maxEndedHistories = 10_000
	// labelUnit is the number of label bytes that weigh as much as one history.
	labelUnit = 512
	// maxBatchBytes limits the label keys of all key groups in a namespace.
	maxBatchBytes = 1 << 20
)

type endedHistory struct {
	namedSeries

	set       *labelSet
	lastUsed  int64 // instant of the last CPU sample, or of creation
	retention retention
	position  int // position within its retention, latest first
}

// retention orders histories by how likely they are needed.
type retention struct {
	rank int    // higher ranks stay longer
	vpa  string // VPA that selects it, or did until its target was missing
}

const (
	unclaimed = iota // no VPA
	claimed          // of a VPA, or a fold target of running pods
)

// weight is the memory weight of one history of a label set with its labels and VPA links.
func (set *labelSet) weight() int { return 1 + len(set.text)/labelUnit + len(set.vpas)/MaxVPAs }

// countEnded counts histories that may have ended because a pod left the label set.
func (set *labelSet) countEnded(template *podTemplate) {
	if len(set.pods) > 0 && set.pods[0].podTemplate == template { // the usual case
		return
	}
	set.namespace.endedWeight += len(template.containers) * set.weight()
}

// limitEnded drops the least recently used ended histories if a namespace has too many. Histories
// of VPAs go last, starting with the VPA that has the most.
func (m *Model) limitEnded(s *namespaceState) {
	if s.endedWeight <= max(s.maxEndedWeight, maxEndedHistories) {
		return
	}
	all, weight, running := m.endedHistories(s)
	s.maxEndedWeight, s.endedWeight = max(maxEndedHistories, 2*running), weight
	if weight <= s.maxEndedWeight*7/8 { // avoids counting again soon
		return
	}
	if !s.limitLogged {
		s.limitLogged = true
		klog.Background().Info("Namespace has too many histories of ended containers, dropping the oldest, first without a VPA",
			"namespace", s.name, "histories", len(all), "most", s.maxEndedWeight)
	}
	slices.SortFunc(all, func(a, b endedHistory) int {
		return cmp.Or(cmp.Compare(a.retention.rank, b.retention.rank), cmp.Compare(b.position, a.position), older(a, b))
	})
	dropped := map[*labelSet]struct{}{}
	for _, e := range all {
		if s.endedWeight <= s.maxEndedWeight*3/4 {
			break
		}
		if !m.config.Store.DropSeries(e.series) {
			continue
		}
		m.removeSeries(e.series)
		s.endedWeight -= e.set.weight()
		dropped[e.set] = struct{}{}
	}
	for set := range dropped {
		m.seriesChanged(set)
		m.dropEmptySet(set)
	}
}

func (m *Model) endedHistories(s *namespaceState) (all []endedHistory, weight, running int) {
	foldTargets := s.foldTargets()
	by := map[retention][]endedHistory{}
	for _, set := range s.sets {
		runs := map[string]bool{}
		var last *podTemplate
		for _, p := range set.pods {
			running += len(p.containers)
			if p.podTemplate == last {
				continue
			}
			last = p.podTemplate
			for _, container := range p.containers {
				runs[container] = true
			}
		}
		e := endedHistory{set: set, retention: set.retention(foldTargets)}
		for _, n := range set.series {
			if runs[n.container] {
				continue
			}
			e.namedSeries, e.lastUsed = n, m.lastUsed(n)
			by[e.retention] = append(by[e.retention], e)
			weight += set.weight()
		}
	}
	for _, histories := range by {
		slices.SortFunc(histories, func(a, b endedHistory) int { return -older(a, b) })
		for i := range histories {
			histories[i].position = i
		}
		all = append(all, histories...)
	}
	return all, weight, running
}

func (set *labelSet) retention(foldTargets map[string]bool) retention {
	switch {
	case len(set.vpas) > 0:
		return retention{claimed, set.vpas[0].Object.Name}
	case set.lastVPA != "" || foldTargets[set.labelText()]:
		return retention{claimed, set.lastVPA}
	}
	return retention{}
}

func (m *Model) lastUsed(n namedSeries) int64 {
	if _, last, _ := m.config.Store.Span(n.series); !last.IsZero() {
		return last.UnixNano()
	}
	return m.config.Store.CreatedAt(n.series).UnixNano()
}

func older(a, b endedHistory) int {
	return cmp.Or(cmp.Compare(a.lastUsed, b.lastUsed), cmp.Compare(a.set.text, b.set.text), cmp.Compare(a.container, b.container))
}
