package status

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/recommender/model"
)

// inputs is all that the status of a VPA is made of, apart from settings.
type inputs struct {
	revision uint64
	object   *vpav1.VerticalPodAutoscaler
	pods     int
	trouble  string
	grace    bool
	conflict string
	unsaved  bool
}

func inputsOf(v *model.VPA, now time.Time) inputs {
	i := inputs{revision: v.Revision(), object: v.Object, pods: v.Pods(), grace: v.InGrace(now), conflict: conflict(v), unsaved: v.Unsaved}
	if v.TargetError != nil {
		i.trouble = v.TargetError.Error()
	}
	return i
}

// sameBut tells whether only the histories differ.
func (i inputs) sameBut(o inputs) bool {
	o.revision = i.revision
	return i == o
}

// handled is what Publisher knows of a VPA.
type handled struct {
	vpa     *model.VPA
	inputs  inputs // of the last time
	done    bool   // the last time succeeded
	phase   time.Duration
	tried   time.Time // when its turn came; zero: it never did
	sent    time.Time // last write of this process, also one that failed; at first, when it saw the VPA
	putOff  bool      // the published status is not quite what it would be
	rushed  bool      // the share of bounds was used up
	history int       // step of the history behind the recommendation, -1: none is known

	// published are the estimates that the published status was made of, or would
	// be. Not those of the last time: many small changes add up. None = not known.
	published []Estimate
}

// settled tells what becomes of estimates for which nothing must be built, because
// nothing else changed and what they lead to is published, or can wait.
func (p *Publisher) settled(h *handled, fresh []Estimate, now time.Time) (result, bool) {
	if slices.Equal(h.published, fresh) {
		return unchanged, len(fresh) > 0
	}
	return putOff, !h.due(now) && p.near(h, fresh)
}

func (p *Publisher) near(h *handled, fresh []Estimate) bool {
	return slices.EqualFunc(h.published, fresh, func(a, b Estimate) bool { return a.near(b, p.tolerance(h, a.History)) })
}

// tolerance returns by how much bounds may differ from what is published. They come
// nearer to the target as the history gets longer, by the share f/(1+days) when that
// becomes longer by f: while it is short, some f must pass before that alone is worth
// a write. VPAs that began together have their own f, lest all write at once.
//
// Where more bounds move than a pass has time for, they wait however much that is.
func (p *Publisher) tolerance(h *handled, history time.Duration) tolerance {
	if h.rushed {
		return tolerance{math.Inf(1), math.Inf(1)}
	}
	if p.Tolerance <= 0 || history >= Steps[len(Steps)-1].From {
		return tolerance{p.Tolerance, p.Tolerance}
	}
	longer := (0.5 + float64(h.phase)/float64(longest)) / 4
	return tolerance{wider: p.Tolerance, narrower: max(p.Tolerance, longer/(1+history.Hours()/24))}
}

// note keeps what became of the estimates of a VPA.
func (p *Publisher) note(h *handled, r result, fresh []Estimate, now time.Time) {
	h.done, h.putOff = r != failed && r != late, r == putOff
	if r == written || !h.done {
		h.sent = now
	}
	switch {
	case r == written || r == unchanged:
		h.published = append(h.published[:0], fresh...)
	case r == putOff && !p.near(h, fresh):
		h.published = h.published[:0] // it was not made of these
	}
}

// postpone leaves a VPA that was found with inputs to the next pass.
func (h *handled) postpone(i inputs) { h.done, h.inputs = false, i }

// before orders those that there may be no time for. Whose turn came longest ago is
// first, so that nothing starves: neither a new VPA, nor those behind others whose
// writes hang. Among equals it is whose last write is the oldest, so that bounds take
// turns; a write that failed counts.
func (h *handled) before(o *handled) int {
	return cmp.Or(h.tried.Compare(o.tried), h.sent.Compare(o.sent))
}

// stale tells whether there is anything to do.
func (h *handled) stale(i inputs, now time.Time) bool {
	return !h.done || !h.vpa.Recommended || h.inputs != i || h.putOff && (h.rushed || h.turn(now))
}

// turn tells whether the moment of the VPA has come since its last write.
func (h *handled) turn(now time.Time) bool {
	slot := func(at time.Time) int64 { return at.Add(-h.phase).UnixNano() / int64(longest) }
	return slot(now) != slot(h.sent)
}

// due tells whether bounds must be published that are nearly as they should be.
func (h *handled) due(now time.Time) bool { return !h.rushed && h.turn(now) }

// of returns what is known of a VPA.
func (p *Publisher) of(v *model.VPA, now time.Time) *handled {
	h := p.handled[v]
	if h == nil {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(v.Object.Namespace + "/" + v.Object.Name)) // a hash never fails
		h = &handled{vpa: v, sent: now, history: -1, phase: time.Duration(sum.Sum64() % uint64(longest))}
		if p.handled == nil {
			p.handled = map[*model.VPA]*handled{}
		}
		p.handled[v] = h
	}
	return h
}

// prune forgets VPAs that are gone.
func (p *Publisher) prune(vpas []*model.VPA) {
	if len(p.handled) <= len(vpas) {
		return
	}
	present := make(map[*model.VPA]bool, len(vpas))
	for _, v := range vpas {
		present[v] = true
	}
	for v := range p.handled {
		if !present[v] {
			delete(p.handled, v)
		}
	}
}

// longest is how long a bound may differ from what is published. Each VPA has its
// own moment within it.
const longest = time.Hour

// canWait tells whether a status differs from the published one only in bounds,
// and so little that nobody needs to know at once.
func (p *Publisher) canWait(h *handled, t tolerance, fresh vpav1.VerticalPodAutoscalerStatus, now time.Time) bool {
	published := &h.vpa.Object.Status
	if p.Tolerance <= 0 || h.due(now) || published.Recommendation == nil ||
		published.ObservedGeneration != fresh.ObservedGeneration || !slices.EqualFunc(published.Conditions, fresh.Conditions, sameCondition) {
		return false
	}
	before, after := published.Recommendation.ContainerRecommendations, fresh.Recommendation.ContainerRecommendations
	if len(before) != len(after) {
		return false
	}
	differs := false
	for i := range after {
		b, a := &before[i], &after[i]
		if !sameTarget(b, a) {
			return false
		}
		was, is := convert.Bounds(*b), convert.Bounds(*a)
		if !t.covers(was, is) {
			return false
		}
		differs = differs || was != is
	}
	return differs
}
