package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Usage is one measurement of a resource, in millicores or bytes.
type Usage struct {
	Amount     resources.Amount
	Limit      resources.Amount // limit of the usage, 0 = no limit
	Request    resources.Amount // in force, 0 = equal to the limit, needed with Throttled only
	FixedLimit bool             // the limit does not follow the request

	// Throttled is the share of time, 0 to 1, in which usage reached the CPU limit. 0 if unknown.
	Throttled float64
}

// From cappedShare of its limit on, CPU usage is capped, and the demand is assumed to be
// cappedFactor times the limit. Otherwise a container at its limit would appear to need no more.
const cappedShare, cappedFactor = 0.98, 2

// From this share of throttled time on, the mean usage hides bursts up to the limit.
const minThrottled = 0.05

// CappedByLimit reports whether a CPU limit that follows the request hides the demand.
func (u Usage) CappedByLimit() bool {
	limit := float64(u.Limit)
	return limit > 0 && !u.FixedLimit && (float64(u.Amount) >= cappedShare*limit || u.Throttled >= minThrottled)
}

// demand returns the estimated CPU demand in millicores, and its part due to throttling.
func (t *Sketch) demand(at int64, u Usage) (wanted, throttled float64) {
	use, limit := float64(u.Amount), float64(u.Limit)
	switch {
	case limit <= 0:
		return use, 0
	case use >= cappedShare*limit:
		return cappedFactor * limit, 0
	case t.countsThrottling() && !u.FixedLimit: // with a fixed limit no request would help
		need := t.throttled.decayedNeed(at)
		throttled = t.throttled.demand(at, u)
		return max(use, need, throttled), throttled
	}
	return use, 0
}

func (t *Sketch) countsThrottling() bool { return t.Load[cpu] != nil && t.Load[cpu].shape.throttling }

func (t *Sketch) activeLoad() *Load {
	if t.Tracked != nil && t.Tracked.Large() {
		return &t.Tracked.Load
	}
	return t.Load[cpu]
}

// ThrottledDemand returns the minimum demand in millicores that throttling has shown, 0 if unknown.
func (t *Sketch) ThrottledDemand() float64 { return t.throttled.decayedNeed(t.Now) }

// throttled is the evidence of a CPU limit that is reached in bursts.
type throttled struct {
	lowest timedAmount // lowest limit of the last 15 minutes or more
	need   timedAmount // demand to which throttling has raised the load
}

type timedAmount struct {
	amount uint16 // CPU scale code, 0 = none
	slot   uint16 // number of the 15-minute slot since 1970, low 16 bits
}

// slotLength is longer than the interval over which throttling is measured.
const slotLength = int64(15 * time.Minute)

func newTimedAmount(at int64, amount float64) timedAmount {
	return timedAmount{scales[cpu].encode(amount), uint16(at / slotLength)}
}

// age returns the number of slots since the amount was set, 0 after 341 days.
func (l timedAmount) age(at int64) float64 {
	if slots := uint16(at/slotLength) - l.slot; slots <= math.MaxInt16 {
		return float64(slots)
	}
	return 0
}

// Half-life of the throttled demand in slots: one week.
const needHalfLife = 7 * 24 * 4

func (h *throttled) decayedNeed(at int64) float64 {
	return scales[cpu].decode(h.need.amount) * math.Exp2(-h.need.age(at)/needHalfLife)
}

// demand returns the minimum demand of a throttled usage below the limit, else 0. It is twice the
// request, because the limit follows the request and doubles too. Throttling is measured over some
// minutes in which the limit may just have been raised, so the lowest recent limit applies. Each
// throttled period uses all of the limit, so inconsistent samples do not count.
func (h *throttled) demand(at int64, u Usage) float64 {
	limit := float64(u.Limit)
	if h.lowest.amount == 0 || limit <= scales[cpu].decode(h.lowest.amount) || h.lowest.age(at) > 1 {
		h.lowest = newTimedAmount(at, limit)
	}
	lowest := min(scales[cpu].decode(h.lowest.amount), limit)
	if !(u.Throttled >= minThrottled) || float64(u.Amount) < minThrottled*lowest {
		return 0
	}
	wanted := cappedFactor * lowest
	if u.Request > 0 && u.Request < u.Limit {
		wanted *= float64(u.Request) / limit
	}
	return wanted
}

// recordNeed keeps the demand of a throttled usage if it has raised the load, as a single burst
// does not. Under the higher limit nothing is throttled and the means hide the bursts again, so
// without this memory the request would oscillate.
func (h *throttled) recordNeed(at int64, wanted float64, l *Load) {
	if wanted > h.decayedNeed(at) && max(l.Level(0, at), l.Level(1, at)) >= wanted {
		h.need = newTimedAmount(at, wanted)
	}
}

type throttlingPart struct{}

func (throttlingPart) needed(t *Sketch) bool { return t.countsThrottling() }

func (throttlingPart) merge(t, o *Sketch) {
	if t.countsThrottling() && t.throttled == (throttled{}) {
		t.throttled = o.throttled
	}
}

func (throttlingPart) write(t *Sketch, w *imageWriter) {
	if h := t.throttled; t.countsThrottling() && h != (throttled{}) {
		for _, n := range [...]uint16{h.lowest.amount, h.lowest.slot, h.need.amount, h.need.slot} {
			w.Int(int64(n))
		}
	}
}

func (throttlingPart) read(t *Sketch, r *imageReader) bool {
	if t.countsThrottling() {
		for _, l := range []*timedAmount{&t.throttled.lowest, &t.throttled.need} {
			*l = timedAmount{r.Code(&scales[cpu]), uint16(r.Within(0, math.MaxUint16))}
		}
	}
	return t.countsThrottling()
}

// Starting reports whether CPU usage at this age of a container belongs to its start. boost is the
// duration of its startup boost, 0 = none. A negative age, as with a wrong clock, is no start.
func (n *Needs) Starting(age, boost time.Duration) bool {
	return n.Start > 0 && age >= 0 && age < n.Start+boost
}

// ObserveStart is ObservePod during a container start. The usage counts only until other CPU usage
// arrives, which matters for jobs shorter than their start phase.
func (t *Sketch) ObserveStart(pod string, at time.Time, use, limit resources.Amount) {
	if _, known := t.Coverage(cpu); known && !t.flags.has(onlyStarts) {
		return
	}
	t.observe(pod, at, cpu, Usage{Amount: use, Limit: limit})
	t.flags.set(onlyStarts, true)
}

// forgetStarts drops all CPU usage if it consists of container starts only.
func (t *Sketch) forgetStarts() {
	if !t.flags.has(onlyStarts) {
		return
	}
	t.flags.set(onlyStarts, false)
	t.firstUsage[cpu] = 0
	if l := t.Load[cpu]; l != nil {
		t.Load[cpu] = newLoad(l.shape)
	}
	if l := t.Tracked; l != nil {
		t.Tracked = newTracked(&TrackedShape{l.shape})
	}
	if t.Hours[cpu] != nil {
		t.Hours[cpu] = newHours(cpu)
	}
	t.PressureHours = nil
}

// mergeStarts runs first in a merge. It drops the starts of t if o has other usage. The few starts
// of o are merged in any case.
func (t *Sketch) mergeStarts(o *Sketch) {
	switch {
	case o.firstUsage[cpu] == 0:
	case t.firstUsage[cpu] == 0:
		t.flags.set(onlyStarts, t.flags.has(ignoresStarts) && o.flags.has(onlyStarts))
	case !o.flags.has(onlyStarts):
		t.forgetStarts()
	}
}

type startsPart struct{}

func (startsPart) needed(t *Sketch) bool { return t.flags.has(ignoresStarts) }

func (startsPart) merge(_, _ *Sketch) {}

func (startsPart) write(t *Sketch, w *imageWriter) {
	if t.flags.has(onlyStarts) {
		w.Int(1)
	}
}

func (s startsPart) read(t *Sketch, r *imageReader) bool {
	t.flags.set(onlyStarts, r.Within(1, 1) == 1 && s.needed(t))
	return s.needed(t)
}
