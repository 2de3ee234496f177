package backtest

import (
	"time"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

const day = int64(24 * time.Hour)

// WarmUp is how long a replay warms up, unless the recording is short.
const WarmUp = 24 * time.Hour

// Margin is that of the memory that hindsight would request.
const Margin = 0.10

// Result is what the replay of one kind of one container under one candidate led to.
type Result struct {
	Dataset, Workload, Container string
	Class                        replay.Class
	Candidate                    string
	Kind                         resources.Kind
	Limit                        string // policy
	Step                         time.Duration
	Short                        bool // too short for the usual warm-up, which is a quarter of it
	Clipped                      bool // a limit seems to have cut the recorded use
	First                        resources.Amount

	Cold, Scored Tally
	Near, Close  Outcome   // time until the request stays within 25 % and 10 % of hindsight
	Rises        []Outcome // time from each sustained rise of use to a request that is enough
	Falls        []Outcome // time from each sustained fall to a cut of a quarter
	Overshoot    []float64 // of the request over the level of each rise, in the day after it
}

// Outcome is a time that was waited for something.
type Outcome struct {
	Seconds float64
	Reached bool // it came; else the wait ended without
}

// GroundTruth is what scoring one kind of a recording needs, whoever recommends. It
// may serve many replays, side by side.
type GroundTruth struct {
	recording    *replay.Recording
	kind         resources.Kind
	warm         int64 // end of the warm-up
	end          int64
	short        bool
	clipped      bool
	step         time.Duration
	cold, scored replay.Hindsight
	level        float64 // static hindsight of the whole recording
}

// ScoredFrom returns when the scored phase of a recording with samples begins, in nanoseconds
// since 1970, and whether the recording is too short for the whole warm-up. One that is not
// twice as long has a warm-up of a quarter of its own length.
func ScoredFrom(r *replay.Recording, warmUp time.Duration) (from int64, short bool) {
	span := r.Span()
	if short = span < 2*warmUp; short {
		warmUp = span / 4
	}
	return r.At[0] + int64(warmUp), short
}

// NewGroundTruth prepares the scoring of a recording with a warm-up, of which a
// recording that is not twice as long gets a quarter of its own length.
func NewGroundTruth(r *replay.Recording, k resources.Kind, warmUp time.Duration) *GroundTruth {
	g := &GroundTruth{recording: r, kind: k, step: r.Step(), clipped: r.Clipped(k)}
	if len(r.At) == 0 {
		return g
	}
	start, span := r.At[0], r.Span()
	g.warm, g.short = ScoredFrom(r, warmUp)
	g.end = start + int64(span)
	holds := r.Holds(k)
	g.cold = replay.LookBack(r, k, holds, start, g.warm, Margin)
	g.scored = replay.LookBack(r, k, holds, g.warm, g.end, Margin)
	g.level = max(g.cold.Static, g.scored.Static)
	if k == resources.CPU {
		g.level = replay.Static(r, k, holds, start, g.end, Margin)
	}
	return g
}

// Static returns the one request that hindsight would have made for the scored phase.
func (g *GroundTruth) Static() float64 { return g.scored.Static }

// scorer is the witness of one kind. Make it with newScorer.
type scorer struct {
	ground    *GroundTruth
	result    Result
	phase     *scoredPhase
	scored    bool // the warm-up is over
	stability stability
	path      []point // requests from the start
	rise      rise
	fall      fall
}

// newScorer returns a scorer for a replay under a setup, of a candidate with a name.
func newScorer(g *GroundTruth, s replay.Setup, candidate string) *scorer {
	r := g.recording
	w := &scorer{ground: g, result: Result{
		Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Class: r.Class, Candidate: candidate,
		Kind: g.kind, Limit: s.Limits[g.kind].String(), Step: g.step, Short: g.short, Clipped: g.clipped,
		First: replay.First(r, s).Value(g.kind),
	}}
	w.stability.tally = &w.result.Cold
	if len(r.At) > 0 {
		w.phase = newScoredPhase(&w.result.Cold, &g.cold, r.At[0])
		w.path = append(w.path, point{r.At[0], float64(w.result.First)})
	}
	return w
}

// advance goes over to the scored phase when its time has come.
func (w *scorer) advance(at int64) {
	if w.scored || at < w.ground.warm {
		return
	}
	w.phase.close()
	w.scored = true
	w.phase = newScoredPhase(&w.result.Scored, &w.ground.scored, w.ground.warm)
	w.stability.enter(&w.result.Scored)
}

// Sample implements replay.Witness.
func (w *scorer) Sample(s replay.Sample) {
	if s.Kind != w.ground.kind {
		return
	}
	w.advance(s.At)
	w.phase.sample(s, float64(w.result.First))
	w.respond(s)
}

// Advised implements replay.Witness.
func (w *scorer) Advised(a replay.Advice) {
	w.advance(a.At)
	if target, ok := a.Bounds.Target.Get(w.ground.kind); ok {
		w.stability.target(float64(target))
	}
}

// Changed implements replay.Witness.
func (w *scorer) Changed(c replay.Change) {
	if c.Kind != w.ground.kind {
		return
	}
	w.advance(c.At)
	if !c.Anew {
		w.stability.change(c)
	}
	w.path = append(w.path, point{c.At, float64(c.To)})
	w.answer(c)
}

// Killed implements replay.Witness.
func (w *scorer) Killed(k replay.Kill) {
	if w.ground.kind != resources.Memory {
		return
	}
	w.advance(k.At)
	w.phase.kill(k)
}

// Result ends the scoring and returns what was found.
func (w *scorer) Result() Result {
	if w.phase == nil {
		return w.result
	}
	w.advance(w.ground.end)
	w.phase.close()
	w.result.Near = converged(w.path, w.ground.level, 0.25, w.ground.end)
	w.result.Close = converged(w.path, w.ground.level, 0.10, w.ground.end)
	w.finish()
	return w.result
}
