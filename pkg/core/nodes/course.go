package nodes

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// Method is how pods are sized.
type Method struct {
	Name   string
	Recipe *recipe.Recipe // nil = each pod keeps its first request
}

// Amounts are millicores or bytes by step, for each kind; nil = there are none.
type Amounts [resources.Kinds][]float32

// Course is the scored phase of one container under one method, step by step. All pods
// that are copies of it read it, and none changes it.
type Course struct {
	Dataset, Workload, Container string
	Start                        int64   // nanoseconds since 1970, a whole number of steps
	Use                          Amounts // CPU is the mean of a step, memory its highest use; 0 where nothing was recorded
	Request                      Amounts // that the updater has applied
	Limit                        Amounts // that goes with it; 0 = none

	// Of a recipe that shares: the lower bound, the target and the upper bound of the last
	// recommendation before each step; 0 = there was none yet.
	Base, Peak, Upper Amounts
}

// Steps returns how many steps the course has.
func (c *Course) Steps() int { return len(c.Use[0]) }

// Playing is what all courses of a fleet have in common.
type Playing struct {
	Setup  replay.Setup // of which Sized says what is recommended
	Store  usage.StoreConfig
	WarmUp time.Duration // as in a backtest
	Step   time.Duration
	Scale  [resources.Kinds]float64 // that use, requests and limits are multiplied by
}

// Play replays a recording under several methods and returns their courses, in their order; nil if it has less than a
// whole step to score. Both kinds are replayed at once, as in a cluster.
func Play(r *replay.Recording, o Playing, methods []Method) []*Course {
	if len(r.At) == 0 {
		return nil
	}
	from, _ := backtest.ScoredFrom(r, o.WarmUp)
	step := int64(o.Step)
	start := (from + step - 1) / step * step
	steps := int((r.At[0] + int64(r.Span()) - start) / step)
	if steps < 1 {
		return nil
	}
	var courses []*Course
	for _, m := range methods {
		c := &Course{Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Start: start}
		w := newRecorder(c, step, steps, m.Recipe != nil && m.Recipe.Sharing != nil)
		advisor := replay.Advisor(replay.Fixed{})
		if m.Recipe != nil {
			advisor = backtest.Recommender(m.Recipe, o.Store, r, o.Setup)
		}
		replay.Run(r, o.Setup, advisor, w)
		w.finish(o.Scale)
		if len(courses) > 0 {
			c.Use = courses[0].Use // they are equal: nothing acts back on the recorded use
		}
		courses = append(courses, c)
	}
	return courses
}

// recorder is the witness that fills a course.
type recorder struct {
	course *Course
	step   int64
	steps  int
	bounds bool
	sum    [resources.Kinds][]float64 // use, times nanoseconds; of memory the highest use
	time   [resources.Kinds][]int64   // nanoseconds that were recorded
	last   [resources.Kinds]held      // sample before the one that comes
}

// held is a sample that goes on after the step in which it begins.
type held struct {
	use            float64
	end            int64
	request, limit float32
}

func newRecorder(c *Course, step int64, steps int, bounds bool) *recorder {
	w := &recorder{course: c, step: step, steps: steps, bounds: bounds}
	for k := range resources.Kinds {
		w.sum[k], w.time[k] = make([]float64, steps), make([]int64, steps)
		c.Use[k], c.Request[k], c.Limit[k] = make([]float32, steps), make([]float32, steps), make([]float32, steps)
		if bounds {
			c.Base[k], c.Peak[k], c.Upper[k] = make([]float32, steps), make([]float32, steps), make([]float32, steps)
		}
	}
	return w
}

// number returns the step of an instant, which may be before the first or after the last.
func (w *recorder) number(at int64) int { return int(floorDiv(at-w.course.Start, w.step)) }

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

// Sample implements replay.Witness. A sample belongs to the step in which it begins; steps in
// which none begins have what the last one had, as long as it lasts.
func (w *recorder) Sample(s replay.Sample) {
	i, k := w.number(s.At), s.Kind
	w.fill(k, i)
	w.last[k] = held{s.Use, s.At + s.Hold, float32(s.Request), float32(s.Limit)}
	if i < 0 || i >= w.steps {
		return
	}
	if w.time[k][i] == 0 {
		w.course.Request[k][i] = float32(s.Request)
		w.limit(k, i, float32(s.Limit))
	}
	w.time[k][i] += s.Hold
	if k == resources.CPU {
		w.sum[k][i] += s.Use * float64(s.Hold)
	} else {
		w.sum[k][i] = max(w.sum[k][i], s.Use)
	}
}

// limit notes the limit of a step, unless a kill in it has already told the one that was hit.
func (w *recorder) limit(k resources.Kind, i int, limit float32) {
	if w.course.Limit[k][i] == 0 {
		w.course.Limit[k][i] = limit
	}
}

// fill gives the steps before one in which no sample begins what the last sample had.
func (w *recorder) fill(k resources.Kind, before int) {
	last := &w.last[k]
	for i := min(before, w.steps) - 1; i >= 0 && w.time[k][i] == 0; i-- {
		w.course.Request[k][i] = last.request
		w.limit(k, i, last.limit)
		if from := w.course.Start + int64(i)*w.step; from < last.end {
			w.time[k][i] = w.step
			w.sum[k][i] = last.use
			if k == resources.CPU {
				w.sum[k][i] *= float64(w.step)
			}
		} else {
			w.time[k][i] = unrecorded
		}
	}
}

// unrecorded is the time of a step of which nothing is known.
const unrecorded = -1

// Advised implements replay.Witness. A recommendation counts from the first step on that begins after it.
func (w *recorder) Advised(a replay.Advice) {
	if !w.bounds {
		return
	}
	i := max(w.number(a.At+w.step-1), 0)
	if i >= w.steps {
		return
	}
	for k := range resources.Kind(resources.Kinds) {
		if target, ok := a.Bounds.Target.Get(k); ok {
			c := w.course
			c.Peak[k][i] = float32(target)
			c.Base[k][i], c.Upper[k][i] = float32(a.Bounds.Lower.Value(k)), float32(a.Bounds.Upper.Value(k))
		}
	}
}

// Changed implements replay.Witness. Samples say what is in force.
func (w *recorder) Changed(replay.Change) {}

// Killed implements replay.Witness: the limit is raised before the next sample, so the one that was hit is noted here.
func (w *recorder) Killed(kill replay.Kill) {
	if i := w.number(kill.At); i >= 0 && i < w.steps {
		limits := w.course.Limit[resources.Memory]
		if kept := limits[i]; kept == 0 || float32(kill.Limit) < kept {
			limits[i] = float32(kill.Limit)
		}
	}
}

// finish makes means of sums, repeats bounds until the next ones, and scales all.
func (w *recorder) finish(scale [resources.Kinds]float64) {
	c := w.course
	for k := range resources.Kind(resources.Kinds) {
		w.fill(k, w.steps)
		for i := range w.steps {
			use := w.sum[k][i]
			if k == resources.CPU && w.time[k][i] > 0 {
				use /= float64(w.time[k][i])
			}
			c.Use[k][i] = float32(math.Max(use, 0) * scale[k])
			if w.bounds && i > 0 && c.Peak[k][i] == 0 {
				c.Base[k][i], c.Peak[k][i], c.Upper[k][i] = c.Base[k][i-1], c.Peak[k][i-1], c.Upper[k][i-1]
			}
		}
		for _, amounts := range [][]float32{c.Request[k], c.Limit[k], c.Base[k], c.Peak[k], c.Upper[k]} {
			for i := range amounts {
				amounts[i] = float32(float64(amounts[i]) * scale[k])
			}
		}
	}
}
