package sketch

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Starting reports whether the use of CPU at an age of a container is that of its start; boost
// is for how long the startup boost of its VPA lasts, 0 = it has none. A negative age is that
// of a use from before the start, or of a clock that is wrong.
func (n *Needs) Starting(age, boost time.Duration) bool {
	return n.Start > 0 && age >= 0 && age < n.Start+boost
}

// ObserveStart is ObservePod for a use of CPU while its container starts. It counts only as
// long as nothing else is known, as of a job that is over before its start would be: what
// is seen later makes it forgotten.
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
