package sketch

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Use is what was measured of a kind, in millicores or bytes.
type Use struct {
	Amount  resources.Amount
	Limit   resources.Amount // the most that it could be, 0 = no limit
	Request resources.Amount // in force; 0 = as the limit. It matters with Throttled only
	Stands  bool             // the limit stays as it is when the request changes

	// Throttled is the share of the time, 0 to 1, in which a limit of CPU was reached, though
	// the amount may be below it; 0 also where nobody knows.
	Throttled float64
}

// clipped is the share of its limit from which on CPU use says only that more was wanted, and censored what it is taken
// for, as a multiple of the limit. Otherwise a container that is held down would look as if it needed no more.
const clipped, censored = 0.98, 2

// A mean of CPU use below the limit hides that the limit was reached now and then. If it was
// for this share of the time, more was wanted as well.
const reached = 0.05

// HeldDown reports whether a limit of CPU that rises with the request decided how much was used,
// so that nobody knows how much was wanted.
func (u Use) HeldDown() bool {
	limit := float64(u.Limit)
	return limit > 0 && !u.Stands && (float64(u.Amount) >= clipped*limit || u.Throttled >= reached)
}

// demand returns what a use of CPU at an instant is taken for, in millicores, and which part
// of that is due to throttling of this use, 0 = none.
func (t *Sketch) demand(at int64, u Use) (wanted, throttled float64) {
	use, limit := float64(u.Amount), float64(u.Limit)
	switch {
	case limit <= 0:
		return use, 0
	case use >= clipped*limit:
		return censored * limit, 0
	case t.countsThrottling() && !u.Stands: // else no request would help
		need := t.throttled.heldBack(at)
		throttled = t.throttled.demand(at, u)
		return max(use, need, throttled), throttled
	}
	return use, 0
}

// countsThrottling reports whether throttled time matters where it is known.
func (t *Sketch) countsThrottling() bool { return t.Load[cpu] != nil && t.Load[cpu].shape.throttling }

// loadThatCounts returns the load of CPU that a target is made of.
func (t *Sketch) loadThatCounts() *Load {
	if t.Tracked != nil && t.Tracked.Large() {
		return &t.Tracked.Load
	}
	return t.Load[cpu]
}

// HeldBack returns what the CPU use of a container is taken for at least because its limit was
// too low, in millicores, 0 if that is not known.
func (t *Sketch) HeldBack() float64 { return t.throttled.heldBack(t.Now) }

// throttled is what is known of a CPU limit that was reached now and then.
type throttled struct {
	lowest lately // limit of a quarter of an hour at least
	need   lately // what throttling has raised the load to
}

// lately is an amount of millicores and when it was so.
type lately struct {
	amount uint16 // code of the scale of CPU, 0 = none
	slot   uint16 // number of the quarter of an hour since 1970, the last bits of it
}

// slotLength is longer than throttling is measured over.
const slotLength = int64(15 * time.Minute)

func since(at int64, amount float64) lately {
	return lately{scales[cpu].encode(amount), uint16(at / slotLength)}
}

// age returns how many slots have passed until an instant. More than 341 days are none.
func (l lately) age(at int64) float64 {
	if slots := uint16(at/slotLength) - l.slot; slots <= math.MaxInt16 {
		return float64(slots)
	}
	return 0
}

// needHalfLife is after how many slots half of what throttling has shown is forgotten: a week.
const needHalfLife = 7 * 24 * 4

// heldBack returns what is left of that at an instant, in millicores.
func (h *throttled) heldBack(at int64) float64 {
	return scales[cpu].decode(h.need.amount) * math.Exp2(-h.need.age(at)/needHalfLife)
}

// demand returns what a use below a limit is taken for at least if it was throttled, else 0: twice the request, which
// the limit follows, so it will be twice as high. What is known of throttling is about some minutes, so it is about the
// lowest limit of these, which may just have been raised for that reason. Each throttled period used all of the limit:
// figures that ask for more than was used do not count.
func (h *throttled) demand(at int64, u Use) float64 {
	limit := float64(u.Limit)
	if h.lowest.amount == 0 || limit <= scales[cpu].decode(h.lowest.amount) || h.lowest.age(at) > 1 {
		h.lowest = since(at, limit)
	}
	lowest := min(scales[cpu].decode(h.lowest.amount), limit)
	if !(u.Throttled >= reached) || float64(u.Amount) < reached*lowest {
		return 0
	}
	wanted := censored * lowest
	if u.Request > 0 && u.Request < u.Limit {
		wanted *= float64(u.Request) / limit
	}
	return wanted
}

// raised notes what a throttled use was taken for, if that has raised the load: a single burst
// has not. Under the higher limit nothing is throttled, and the means hide again that they are
// made of bursts; without a memory the request would fall and rise for ever.
func (h *throttled) raised(at int64, wanted float64, l *Load) {
	if wanted > h.heldBack(at) && max(l.Level(0, at), l.Level(1, at)) >= wanted {
		h.need = since(at, wanted)
	}
}

// throttling is the part throttled, of a sketch that counts it.
type throttling struct{}

func (throttling) needed(t *Sketch) bool { return t.countsThrottling() }

func (throttling) merge(t, o *Sketch) {
	if t.countsThrottling() && t.throttled == (throttled{}) {
		t.throttled = o.throttled
	}
}

func (throttling) write(t *Sketch, w *imageWriter) {
	if h := t.throttled; t.countsThrottling() && h != (throttled{}) {
		for _, n := range [...]uint16{h.lowest.amount, h.lowest.slot, h.need.amount, h.need.slot} {
			w.Int(int64(n))
		}
	}
}

func (throttling) read(t *Sketch, r *imageReader) bool {
	if t.countsThrottling() {
		for _, l := range []*lately{&t.throttled.lowest, &t.throttled.need} {
			*l = lately{r.Code(&scales[cpu]), uint16(r.Within(0, math.MaxUint16))}
		}
	}
	return t.countsThrottling()
}

// Starting reports whether the use of CPU at an age of a container is that of its start; boost
// is for how long the startup boost of its VPA lasts, 0 = it has none. A negative age is that
// of a use from before the start, or of a clock that is wrong.
func (n *Needs) Starting(age, boost time.Duration) bool {
	return n.Start > 0 && age >= 0 && age < n.Start+boost
}

// ObserveStart is ObservePod for a use of CPU while its container starts. It counts only as long as nothing else is
// known, as of a job that is over before its start would be: what is seen later makes it forgotten.
func (t *Sketch) ObserveStart(pod string, at time.Time, use, limit resources.Amount) {
	if _, known := t.Covers(cpu); known && !t.flags.has(onlyStarts) {
		return
	}
	t.observe(pod, at, cpu, Use{Amount: use, Limit: limit})
	t.flags.set(onlyStarts, true)
}

// forgetStarts makes the sketch know nothing of CPU, if that is only starts.
func (t *Sketch) forgetStarts() {
	if !t.flags.has(onlyStarts) {
		return
	}
	t.flags.set(onlyStarts, false)
	t.begun[cpu] = 0
	if l := t.Load[cpu]; l != nil {
		t.Load[cpu] = newLoad(l.shape)
	}
	if l := t.Tracked; l != nil {
		t.Tracked = newTracked(&TrackedShape{l.shape})
	}
	if t.Hours[cpu] != nil {
		t.Hours[cpu] = newHours(cpu)
	}
	t.Pressed = nil
}

// mergeStarts comes before all else of Merge: starts are forgotten where the other sketch
// knows more. Those of the other stay, if it has no more than them: they are few.
func (t *Sketch) mergeStarts(o *Sketch) {
	switch {
	case o.begun[cpu] == 0:
	case t.begun[cpu] == 0:
		t.flags.set(onlyStarts, t.flags.has(sparing) && o.flags.has(onlyStarts))
	case !o.flags.has(onlyStarts):
		t.forgetStarts()
	}
}

// starts is the part that says that only starts are known of CPU.
type starts struct{}

func (starts) needed(t *Sketch) bool { return t.flags.has(sparing) }

// merge has nothing to do: mergeStarts did.
func (starts) merge(_, _ *Sketch) {}

func (starts) write(t *Sketch, w *imageWriter) {
	if t.flags.has(onlyStarts) {
		w.Int(1)
	}
}

func (s starts) read(t *Sketch, r *imageReader) bool {
	t.flags.set(onlyStarts, r.Within(1, 1) == 1 && s.needed(t))
	return s.needed(t)
}
