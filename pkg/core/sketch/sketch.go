package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Needs says what a recipe wants to know.
type Needs struct {
	Peaks      bool                        // of memory
	Load       [resources.Kinds]*LoadShape // nil = none
	Points     bool                        // of both kinds
	Mean       bool                        // points are means of the pods; else of the pod that uses most
	Hours      bool                        // of both kinds
	Pressure   bool                        // also hours of CPU use and the time that work waited, where that is known
	Weighted   *WeightedShape
	Models     [resources.Kinds]*ModelShape // nil = none
	Kills      bool
	LimitRatio bool          // of memory
	Declared   time.Duration // for how long a new container keeps its memory request, in whole minutes; 0 = not at all. With Peaks only
}

// Any tells whether anything is needed.
func (n Needs) Any() bool { return n != Needs{} }

// Sketch is what was needed, filled. What was not is nil.
type Sketch struct {
	Peaks      *DailyPeaks
	Load       [resources.Kinds]*Load
	Points     [resources.Kinds]*Points
	Hours      [resources.Kinds]*Hours
	Weighted   [resources.Kinds]*Weighted
	Models     [resources.Kinds]*Models
	Kills      *Kills
	Pressed    *Hours                 // of CPU use and the time that work waited; nil = that was never known
	LimitRatio LimitRatio             // of memory, as last seen
	waits      bool                   // Pressed is wanted
	limited    bool                   // LimitRatio is wanted
	first      uint16                 // memory request when the container was new, coded; 0 = not known
	early      uint16                 // minutes for which it matters
	Now        int64                  // nanoseconds since 1970: when it is read, or was written last
	begun      [resources.Kinds]int64 // first use that all parts know; 0 = none
}

// New returns an empty sketch.
func New(n Needs) *Sketch {
	t := &Sketch{}
	t.Adapt(n)
	return t
}

// Adapt makes a sketch what another recipe needs. What both want to know it keeps;
// what only the new one does begins anew, and what is not needed is dropped.
func (t *Sketch) Adapt(n Needs) {
	var fresh [resources.Kinds]bool
	keep(&t.Peaks, n.Peaks, func() *DailyPeaks { return &DailyPeaks{} }, &fresh[resources.Memory])
	for k := range resources.Kind(resources.Kinds) {
		if t.Load[k] != nil && n.Load[k] != nil && !t.Load[k].Adapt(n.Load[k]) {
			t.Load[k] = nil
		}
		keep(&t.Load[k], n.Load[k] != nil, func() *Load { return NewLoad(n.Load[k]) }, &fresh[k])
		keep(&t.Points[k], n.Points, func() *Points { return NewPoints(k, n.Mean) }, &fresh[k])
		if t.Points[k] != nil {
			t.Points[k].Adapt(n.Mean)
		}
		keep(&t.Hours[k], n.Hours, func() *Hours { return &Hours{} }, &fresh[k])
		if t.Weighted[k] != nil && n.Weighted != nil && !t.Weighted[k].Adapt(n.Weighted) {
			t.Weighted[k] = nil
		}
		keep(&t.Weighted[k], n.Weighted != nil, func() *Weighted { return NewWeighted(n.Weighted, k) }, &fresh[k])
		if t.Models[k] != nil && n.Models[k] != nil && !t.Models[k].Adapt(n.Models[k]) {
			t.Models[k] = nil
		}
		keep(&t.Models[k], n.Models[k] != nil, func() *Models { return NewModels(n.Models[k]) }, &fresh[k])
		if fresh[k] {
			t.begun[k] = 0
		}
	}
	keep(&t.Kills, n.Kills, func() *Kills { return &Kills{} }, new(bool))
	if t.limited = n.LimitRatio; !n.LimitRatio {
		t.LimitRatio = Unseen
	}
	if t.early = uint16(min(n.Declared/time.Minute, math.MaxUint16)); t.early == 0 {
		t.first = 0
	}
	if t.waits = n.Pressure; !n.Pressure || !n.Hours {
		t.Pressed = nil
	}
}

// keep makes a part be there or not, and notes that it begins anew.
func keep[P any](part **P, needed bool, begin func() *P, fresh *bool) {
	switch {
	case !needed:
		*part = nil
	case *part == nil:
		*part, *fresh = begin(), true
	}
}

// Covers returns the time from the first to the last use of a kind, and false if
// there is none: since then all is known that was needed.
func (t *Sketch) Covers(k resources.Kind) (time.Duration, bool) {
	return time.Duration(max(t.Now-t.begun[k], 0)), t.begun[k] != 0
}

// clipped is the share of its limit from which on CPU use says only that more
// was wanted, and censored what it is taken for, as a multiple of the limit.
// Otherwise a container that is held down would look as if it needed no more.
const clipped, censored = 0.98, 2

// Observe is ObservePod for a workload of one pod.
func (t *Sketch) Observe(at time.Time, k resources.Kind, use, limit resources.Amount) {
	t.ObservePod("", at, k, use, limit)
}

// ObservePod takes the use of a kind at an instant, in millicores or bytes, of the pod
// with a name; limit is what it could have at most, 0 = no limit.
func (t *Sketch) ObservePod(pod string, at time.Time, k resources.Kind, use, limit resources.Amount) {
	instant, value := at.UnixNano(), float64(use)
	t.begin(k, instant)
	if k == resources.Memory && t.Peaks != nil {
		t.Peaks.Observe(instant, value)
	}
	weighed := value
	if k == resources.CPU && limit > 0 && value >= clipped*float64(limit) {
		weighed = censored * float64(limit)
	}
	if l := t.Load[k]; l != nil {
		l.Observe(instant, weighed)
	}
	if m := t.Models[k]; m != nil {
		m.Observe(instant, weighed)
	}
	if p := t.Points[k]; p != nil {
		p.Observe(instant, value, pod)
	}
	if h := t.Hours[k]; h != nil {
		h.Observe(instant, value)
	}
	if k == resources.CPU && t.Pressed != nil {
		t.Pressed.Observe(instant, value) // Waited raises it
	}
	if w := t.Weighted[k]; w != nil {
		w.Observe(instant, value)
	}
}

func (t *Sketch) begin(k resources.Kind, instant int64) {
	t.Now = max(t.Now, instant)
	if t.begun[k] == 0 {
		t.begun[k] = max(instant, 1)
	}
}

// Killed takes a kill for want of memory: what was requested, or used where the kubelet
// evicted the pod, and the limit that was hit, 0 = none.
func (t *Sketch) Killed(at time.Time, request, limit resources.Amount) {
	instant := at.UnixNano()
	t.begin(resources.Memory, instant)
	had := float64(max(request, limit))
	need := NeededAfterKill(had, 1)
	if t.Peaks != nil {
		need = t.Peaks.Kill(instant, had)
	}
	if l := t.Load[resources.Memory]; l != nil {
		l.Observe(instant, need)
	}
	if m := t.Models[resources.Memory]; m != nil {
		m.Observe(instant, need)
	}
	if t.Kills != nil {
		t.Kills.add(kill{instant, request, t.reached(request, limit)})
	}
}

// reached returns the memory at which a container was killed: its limit or, without one,
// the most that was seen of it lately, but no less than the report says.
func (t *Sketch) reached(reported, limit resources.Amount) resources.Amount {
	switch hours := t.Hours[resources.Memory]; {
	case limit > 0:
		return limit
	case hours != nil:
		const lately, highest = 30, 1 // minutes, and the quantile of them
		return max(reported, resources.FromFloat(hours.Recent(lately, highest)))
	}
	return reported
}

// Merge adds the sketch of another time, which must be of the same needs. Where both
// know the same moment the higher use counts, or both do.
func (t *Sketch) Merge(o *Sketch) {
	t.Now = max(t.Now, o.Now)
	for k := range resources.Kind(resources.Kinds) {
		if t.begun[k] == 0 || o.begun[k] != 0 && o.begun[k] < t.begun[k] {
			t.begun[k] = o.begun[k]
		}
		merge(t.Load[k], o.Load[k], (*Load).Merge)
		merge(t.Models[k], o.Models[k], (*Models).Merge)
		merge(t.Points[k], o.Points[k], (*Points).Merge)
		merge(t.Hours[k], o.Hours[k], (*Hours).Merge)
		merge(t.Weighted[k], o.Weighted[k], (*Weighted).Merge)
	}
	t.mergePressed(o)
	if t.LimitRatio == Unseen && t.limited {
		t.LimitRatio = o.LimitRatio
	}
	if t.first == 0 && t.early > 0 {
		t.first = o.first
	}
	merge(t.Peaks, o.Peaks, (*DailyPeaks).Merge)
	merge(t.Kills, o.Kills, (*Kills).merge)
}

func merge[P any](part, other *P, do func(part, other *P)) {
	if part != nil && other != nil {
		do(part, other)
	}
}
