package backtest

import (
	"time"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

const day = int64(24 * time.Hour)

// WarmUp is the default length of the warm-up.
const WarmUp = 24 * time.Hour

// Margin is the memory margin of hindsight requests.
const Margin = 0.10

// Result is the score of one candidate for one resource of one container.
type Result struct {
	Dataset, Workload, Container string
	Class                        replay.Class
	Candidate                    string
	Kind                         resources.Kind
	Limit                        string // limit policy
	Step                         time.Duration
	Short                        bool // the warm-up is shortened to a quarter of the recording
	Clipped                      bool // a limit seems to have capped the recorded usage
	First                        resources.Amount

	Cold, Scored Tally
	Near, Close  Outcome   // time until the request remains within 25% and 10% of hindsight
	Rises        []Outcome // time from each sustained rise of usage to a sufficient request
	Falls        []Outcome // time from each sustained fall to a cut of a quarter
	Overshoot    []float64 // of the request over the level of each rise, within a day
}

// Outcome is the time until an event.
type Outcome struct {
	Seconds float64
	Reached bool // the event occurred, else the observation ended without it
}

// GroundTruth holds the data for scoring a resource of a recording. It is safe for concurrent use.
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

// ScoredFrom returns the start of the scored phase in nanoseconds since 1970, and whether the
// warm-up is short: a quarter of the recording, if that is shorter than two warm-ups.
func ScoredFrom(r *replay.Recording, warmUp time.Duration) (from int64, short bool) {
	span := r.Span()
	if short = span < 2*warmUp; short {
		warmUp = span / 4
	}
	return r.At[0] + int64(warmUp), short
}

// NewGroundTruth prepares the scoring of a recording. ScoredFrom determines its warm-up.
func NewGroundTruth(r *replay.Recording, k resources.Kind, warmUp time.Duration) *GroundTruth {
	g := &GroundTruth{recording: r, kind: k, step: r.Step(), clipped: r.Clipped(k)}
	if len(r.At) == 0 {
		return g
	}
	start, span := r.At[0], r.Span()
	g.warm, g.short = ScoredFrom(r, warmUp)
	g.end = start + int64(span)
	holds := r.SampleDurations(k)
	g.cold = replay.NewHindsight(r, k, holds, start, g.warm, Margin)
	g.scored = replay.NewHindsight(r, k, holds, g.warm, g.end, Margin)
	g.level = max(g.cold.Static, g.scored.Static)
	if k == resources.CPU {
		g.level = replay.Static(r, k, holds, start, g.end, Margin)
	}
	return g
}

// Static returns the single hindsight request for the scored phase.
func (g *GroundTruth) Static() float64 { return g.scored.Static }

type scorer struct {
	ground    *GroundTruth
	result    Result
	phase     *scoredPhase
	scored    bool // the warm-up has ended
	stability stability
	path      []point // requests from the start
	rise      rise
	fall      fall
}

func newScorer(g *GroundTruth, s replay.Setup, candidate string) *scorer {
	r := g.recording
	w := &scorer{ground: g, result: Result{
		Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Class: r.Class, Candidate: candidate,
		Kind: g.kind, Limit: s.Limits[g.kind].String(), Step: g.step, Short: g.short, Clipped: g.clipped,
		First: replay.InitialRequests(r, s).Value(g.kind),
	}}
	w.stability.tally = &w.result.Cold
	if len(r.At) > 0 {
		w.phase = newScoredPhase(&w.result.Cold, &g.cold, r.At[0])
		w.path = append(w.path, point{r.At[0], float64(w.result.First)})
	}
	return w
}

func (w *scorer) advance(at int64) {
	if w.scored || at < w.ground.warm {
		return
	}
	w.phase.close()
	w.scored = true
	w.phase = newScoredPhase(&w.result.Scored, &w.ground.scored, w.ground.warm)
	w.stability.startPhase(&w.result.Scored)
}

func (w *scorer) Sample(s replay.Sample) {
	if s.Kind != w.ground.kind {
		return
	}
	w.advance(s.At)
	w.phase.sample(s, float64(w.result.First))
	w.trackResponses(s)
}

func (w *scorer) Advised(a replay.Advice) {
	w.advance(a.At)
	if target, ok := a.Bounds.Target.Get(w.ground.kind); ok {
		w.stability.target(float64(target))
	}
}

func (w *scorer) Changed(c replay.Change) {
	if c.Kind != w.ground.kind {
		return
	}
	w.advance(c.At)
	if !c.AtCreation {
		w.stability.change(c)
	}
	w.path = append(w.path, point{c.At, float64(c.To)})
	w.recordResponse(c)
}

func (w *scorer) Killed(k replay.Kill) {
	if w.ground.kind != resources.Memory {
		return
	}
	w.advance(k.At)
	w.phase.kill(k)
}

func (w *scorer) Result() Result {
	if w.phase == nil {
		return w.result
	}
	w.advance(w.ground.end)
	w.phase.close()
	w.result.Near = converged(w.path, w.ground.level, 0.25, w.ground.end)
	w.result.Close = converged(w.path, w.ground.level, 0.10, w.ground.end)
	w.closeOutcomes()
	return w.result
}
