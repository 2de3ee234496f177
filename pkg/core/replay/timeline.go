package replay

import (
	"math"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
)

// Frame summarizes a time range. Amounts are millicores or bytes, NaN = unknown.
type Frame struct {
	Highest, Mean        float64      // recorded usage
	Request, Limit       float64      // last in force, limit NaN = none
	Target, Lower, Upper float64      // last recommendation
	Starved              float64      // share of the recorded time with usage above the request
	Steps                [3][]float64 // step values for target, lower and upper of the first recommendation
}

// TimelineEvent is a change or a kill.
type TimelineEvent struct {
	At       int64 // nanoseconds since 1970
	Kill     bool
	From, To float64 // request before and after, or usage and limit of a kill
	Evicted  bool
	Cause    string
}

// Explainer explains a recommendation.
type Explainer interface {
	Explain(now time.Time, current resources.List) recipe.Explanation
}

// Timeline collects the frames and events of one replay. Create it with NewTimeline.
type Timeline struct {
	Kind   resources.Kind
	Start  int64 // nanoseconds since 1970
	Length int64 // nanoseconds of a frame
	Frames []Frame
	Events []TimelineEvent
	Names  [3][]string // step names for target, lower and upper, joined with / if they vary

	explainer Explainer // nil = steps are not recorded
	explained int       // number of frames with steps
	recorded  []float64 // nanoseconds of each frame
	request   resources.List
}

// NewTimeline returns a timeline for one resource, with steps if the advisor is an Explainer.
func NewTimeline(r *Recording, k resources.Kind, frames int, advisor Advisor) *Timeline {
	f := &Timeline{Kind: k, Start: r.At[0], Length: max(int64(r.Span())/int64(frames)+1, 1)}
	f.Frames, f.recorded = make([]Frame, frames), make([]float64, frames)
	nan := math.NaN()
	for i := range f.Frames {
		f.Frames[i] = Frame{Highest: nan, Mean: nan, Request: nan, Limit: nan, Target: nan, Lower: nan, Upper: nan}
	}
	f.explainer, _ = advisor.(Explainer)
	return f
}

func (f *Timeline) frame(at int64) *Frame {
	return &f.Frames[min(max((at-f.Start)/f.Length, 0), int64(len(f.Frames)-1))]
}

// Sample implements Observer.
func (f *Timeline) Sample(s Sample) {
	if s.Kind != f.Kind {
		return
	}
	frame, i := f.frame(s.At), min((s.At-f.Start)/f.Length, int64(len(f.Frames)-1))
	hold := float64(s.Duration)
	if f.recorded[i] == 0 {
		frame.Highest, frame.Mean = s.Use, 0
	}
	before := f.recorded[i]
	f.recorded[i] += hold
	frame.Highest = max(frame.Highest, s.Use)
	frame.Mean = (frame.Mean*before + s.Use*hold) / f.recorded[i]
	starved := 0.0
	if s.Use > float64(s.Request) {
		starved = hold
	}
	frame.Starved = (frame.Starved*before + starved) / f.recorded[i]
	frame.Request = float64(s.Request)
	if s.Limit > 0 {
		frame.Limit = float64(s.Limit)
	}
	f.request = f.request.With(f.Kind, s.Request)
}

// Advised implements Observer.
func (f *Timeline) Advised(a Advice) {
	target, ok := a.Bounds.Target.Get(f.Kind)
	if !ok {
		return
	}
	frame := f.frame(a.At)
	frame.Target, frame.Lower, frame.Upper = float64(target), float64(a.Bounds.Lower.Value(f.Kind)), float64(a.Bounds.Upper.Value(f.Kind))
	if f.explainer == nil || frame.Steps[0] != nil {
		return
	}
	e := f.explainer.Explain(time.Unix(0, a.At).UTC(), f.request)
	for i, values := range [3][]recipe.Value{e.Target[f.Kind], e.Lower[f.Kind], e.Upper[f.Kind]} {
		for j, v := range values {
			switch {
			case f.explained == 0:
				f.Names[i] = append(f.Names[i], v.Step)
			case !strings.Contains(f.Names[i][j], v.Step):
				f.Names[i][j] += " / " + v.Step
			}
			frame.Steps[i] = append(frame.Steps[i], v.Amount)
		}
	}
	f.explained++
}

// Changed implements Observer.
func (f *Timeline) Changed(c Change) {
	if c.Kind == f.Kind {
		f.Events = append(f.Events, TimelineEvent{At: c.At, From: float64(c.From), To: float64(c.To), Evicted: c.Evicted, Cause: string(c.Cause)})
	}
}

// Killed implements Observer.
func (f *Timeline) Killed(k Kill) {
	if f.Kind == resources.Memory {
		f.Events = append(f.Events, TimelineEvent{At: k.At, Kill: true, From: k.Use, To: float64(k.Limit)})
	}
}
