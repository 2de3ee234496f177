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

// Method is a way to set the requests of pods.
type Method struct {
	Name   string
	Recipe *recipe.Recipe // nil = each pod keeps its initial request
}

// Amounts are millicores or bytes by step, for each resource, nil = none.
type Amounts [resources.Kinds][]float32

// Trace is the scored phase of a container under one method, by step. It is immutable and shared.
type Trace struct {
	Dataset, Workload, Container string
	Start                        int64   // nanoseconds since 1970, a multiple of the step
	Use                          Amounts // mean CPU and peak memory of each step, 0 = not recorded
	Request                      Amounts // applied by the updater
	Limit                        Amounts // with the request, 0 = none

	// Bounds of the last recommendation before each step, only with sharing. 0 = none yet.
	Base, Peak, Upper Amounts
}

// Steps returns the number of steps.
func (c *Trace) Steps() int { return len(c.Use[0]) }

// PlayOptions holds the parameters that all traces of a fleet share.
type PlayOptions struct {
	Setup  replay.Setup // Sized selects the resources with recommendations
	Store  usage.StoreConfig
	WarmUp time.Duration // as in a backtest
	Step   time.Duration
	Scale  [resources.Kinds]float64 // factor for usage, requests and limits
}

// Play returns the traces of a recording under several methods in this order, nil if the scored
// phase is shorter than one step. Both resources are replayed together, as in a cluster.
func Play(r *replay.Recording, o PlayOptions, methods []Method) []*Trace {
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
	var courses []*Trace
	for _, m := range methods {
		c := &Trace{Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Start: start}
		w := newRecorder(c, step, steps, m.Recipe != nil && m.Recipe.Sharing != nil)
		advisor := replay.Advisor(replay.Fixed{})
		if m.Recipe != nil {
			advisor = backtest.Recommender(m.Recipe, o.Store, r, o.Setup)
		}
		replay.Run(r, o.Setup, advisor, w)
		w.finish(o.Scale)
		if len(courses) > 0 {
			c.Use = courses[0].Use // equal, because methods do not affect the recorded usage
		}
		courses = append(courses, c)
	}
	return courses
}

type recorder struct {
	trace  *Trace
	step   int64
	steps  int
	bounds bool
	sum    [resources.Kinds][]float64  // CPU usage times nanoseconds, peak memory
	time   [resources.Kinds][]int64    // recorded nanoseconds
	last   [resources.Kinds]lastSample // previous sample
}

// lastSample is a sample that may outlast the step in which it begins.
type lastSample struct {
	use            float64
	end            int64
	request, limit float32
}

func newRecorder(c *Trace, step int64, steps int, bounds bool) *recorder {
	w := &recorder{trace: c, step: step, steps: steps, bounds: bounds}
	for k := range resources.Kinds {
		w.sum[k], w.time[k] = make([]float64, steps), make([]int64, steps)
		c.Use[k], c.Request[k], c.Limit[k] = make([]float32, steps), make([]float32, steps), make([]float32, steps)
		if bounds {
			c.Base[k], c.Peak[k], c.Upper[k] = make([]float32, steps), make([]float32, steps), make([]float32, steps)
		}
	}
	return w
}

func (w *recorder) stepOf(at int64) int { return int(floorDiv(at-w.trace.Start, w.step)) }

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

// Sample implements replay.Observer. A sample belongs to the step in which it begins.
func (w *recorder) Sample(s replay.Sample) {
	i, k := w.stepOf(s.At), s.Kind
	w.fill(k, i)
	w.last[k] = lastSample{s.Use, s.At + s.Duration, float32(s.Request), float32(s.Limit)}
	if i < 0 || i >= w.steps {
		return
	}
	if w.time[k][i] == 0 {
		w.trace.Request[k][i] = float32(s.Request)
		w.limit(k, i, float32(s.Limit))
	}
	w.time[k][i] += s.Duration
	if k == resources.CPU {
		w.sum[k][i] += s.Use * float64(s.Duration)
	} else {
		w.sum[k][i] = max(w.sum[k][i], s.Use)
	}
}

// limit records the limit of a step, unless a kill has recorded the limit that was hit.
func (w *recorder) limit(k resources.Kind, i int, limit float32) {
	if w.trace.Limit[k][i] == 0 {
		w.trace.Limit[k][i] = limit
	}
}

// fill repeats the last sample in the preceding steps without a sample.
func (w *recorder) fill(k resources.Kind, before int) {
	last := &w.last[k]
	for i := min(before, w.steps) - 1; i >= 0 && w.time[k][i] == 0; i-- {
		w.trace.Request[k][i] = last.request
		w.limit(k, i, last.limit)
		if from := w.trace.Start + int64(i)*w.step; from < last.end {
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

const unrecorded = -1

// Advised applies a recommendation from the first step that begins after it.
func (w *recorder) Advised(a replay.Advice) {
	if !w.bounds {
		return
	}
	i := max(w.stepOf(a.At+w.step-1), 0)
	if i >= w.steps {
		return
	}
	for k := range resources.Kind(resources.Kinds) {
		if target, ok := a.Bounds.Target.Get(k); ok {
			c := w.trace
			c.Peak[k][i] = float32(target)
			c.Base[k][i], c.Upper[k][i] = float32(a.Bounds.Lower.Value(k)), float32(a.Bounds.Upper.Value(k))
		}
	}
}

// Changed implements replay.Observer. Samples contain the requests in force.
func (w *recorder) Changed(replay.Change) {}

// Killed records the limit that was hit, because it is raised before the next sample.
func (w *recorder) Killed(kill replay.Kill) {
	if i := w.stepOf(kill.At); i >= 0 && i < w.steps {
		limits := w.trace.Limit[resources.Memory]
		if kept := limits[i]; kept == 0 || float32(kill.Limit) < kept {
			limits[i] = float32(kill.Limit)
		}
	}
}

// finish converts sums to means, repeats bounds until the next ones, and scales all amounts.
func (w *recorder) finish(scale [resources.Kinds]float64) {
	c := w.trace
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
