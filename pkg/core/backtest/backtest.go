// Package backtest replays the recorded usage of a container under several candidates and scores
// each of them.
//
// A Candidate creates an Advisor. Run returns a Result for each resource and candidate, in this
// order. Recipe returns the candidate for a recipe, and Baselines the candidates for comparison.
//
// A scorer observes one replay and sums a Tally for each phase. Summarise, Compare and Front
// aggregate the Results of many containers. Output is deterministic: there is no clock, no unseeded
// randomness and no map order.
package backtest

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// Candidate is a named advisor under test.
type Candidate struct {
	Name string
	// Make returns the advisor for one replay. Only baselines may use Ground, which has the future.
	Make func(Case) replay.Advisor
}

// Case is the input of one replay.
type Case struct {
	Recording *replay.Recording
	Ground    *GroundTruth
	Kind      resources.Kind
	Setup     replay.Setup
}

// Options apply to all candidates.
type Options struct {
	Setup  func(resources.Kind) replay.Setup // setup for one resource
	WarmUp time.Duration                     // 0 = none
	Kinds  []resources.Kind                  // replayed separately, so that changes of one do not trigger the other
}

// Run replays each resource separately under all candidates. It is safe for concurrent use.
func Run(r *replay.Recording, o Options, candidates ...Candidate) []Result {
	var results []Result
	for _, k := range o.Kinds {
		if !r.Has(k) {
			continue
		}
		ground, setup := NewGroundTruth(r, k, o.WarmUp), o.Setup(k)
		for _, c := range candidates {
			scorer := newScorer(ground, setup, c.Name)
			replay.Run(r, setup, c.Make(Case{r, ground, k, setup}), scorer)
			results = append(results, scorer.Result())
		}
	}
	return results
}

// RunTimeline replays one resource of a recording under one candidate, and returns a timeline.
func RunTimeline(r *replay.Recording, k resources.Kind, o Options, c Candidate, frames int) *replay.Timeline {
	ground, setup := NewGroundTruth(r, k, o.WarmUp), o.Setup(k)
	advisor := c.Make(Case{r, ground, k, setup})
	f := replay.NewTimeline(r, k, frames, advisor)
	replay.Run(r, setup, advisor, f)
	return f
}

// Recipe returns the candidate that runs a recipe, with only the chains of the replayed resource.
func Recipe(name string, recipe *recipe.Recipe, store usage.StoreConfig) Candidate {
	return Candidate{name, func(c Case) replay.Advisor {
		return Recommender(recipe.ForKind(c.Kind), store, c.Recording, c.Setup)
	}}
}

// Recommender returns a simulated recommender for a recording with at least one sample.
func Recommender(recipe *recipe.Recipe, store usage.StoreConfig, r *replay.Recording, s replay.Setup) *replay.SimulatedRecommender {
	cluster, pod := replay.NewSimulatedRecommender(store, recipe, time.Unix(0, r.At[0]).UTC()), replay.InitialContainer(r, s)
	cluster.Declare(pod.Requests.Value(resources.Memory), pod.Limits.Value(resources.Memory))
	return cluster
}

// Baselines returns the candidates for comparison: the initial request, the best single request
// with hindsight, moving maxima, and decaying 95% quantiles as in the reference, without its
// minimum requests.
func Baselines(store usage.StoreConfig) []Candidate {
	const day = 24 * time.Hour
	config := recipe.DefaultConfig()
	config.Target[resources.CPU] = 0.95
	config.PodMinCPU, config.PodMinMemory = 0, 0
	p95 := recipe.VPA(config)
	moving := func(window time.Duration) func(Case) replay.Advisor {
		return func(Case) replay.Advisor { return replay.NewMovingMax(window, 0.10) }
	}
	return []Candidate{
		{"first request", func(Case) replay.Advisor { return replay.Fixed{} }},
		{"static oracle", func(c Case) replay.Advisor {
			size := max(resources.FromFloat(c.Ground.Static()+0.5), 1)
			return replay.Fixed{Size: resources.List{}.With(c.Kind, size)}
		}},
		{"max 24h + 10%", moving(day)},
		{"max 7d + 10%", moving(7 * day)},
		Recipe("p95 decaying + 15%", &p95, store),
	}
}

// Pair compares two candidates on the same containers, which is far more exact than two intervals.
type Pair struct {
	Base, Other string
	Kind        resources.Kind
	Containers  int
	Reserved    Figure   // geometric mean over containers of Other's mean request / Base's
	Differences []Figure // Other minus Base, for the figures of a summary
}

// Difference returns a difference by figure name, and whether it exists.
func (p Pair) Difference(name string) (Figure, bool) { return findFigure(p.Differences, name) }

type talliesPair struct{ base, other *Tally }

// Compare compares the scored phases of two candidates on the containers that both of them have.
func Compare(results []Result, base, other string, k resources.Kind) Pair {
	p := Pair{Base: base, Other: other, Kind: k}
	type key struct{ dataset, workload, container string }
	first := map[key]*Tally{}
	var twins []talliesPair
	for i := range results {
		if r := &results[i]; r.Candidate == base && r.Kind == k {
			first[key{r.Dataset, r.Workload, r.Container}] = &r.Scored
		}
	}
	for i := range results {
		r := &results[i]
		if t, ok := first[key{r.Dataset, r.Workload, r.Container}]; ok && r.Candidate == other && r.Kind == k {
			twins = append(twins, talliesPair{t, &r.Scored})
		}
	}
	if p.Containers = len(twins); p.Containers == 0 {
		return p
	}
	logs, has := make([]float64, len(twins)), make([]float64, len(twins))
	for i, t := range twins {
		if t.base.MeanRequest() > 0 && t.other.MeanRequest() > 0 {
			logs[i], has[i] = math.Log(t.other.MeanRequest()/t.base.MeanRequest()), 1
		}
	}
	all := []Formula{{"reserved", func(of []int) float64 { return math.Exp(Ratio(logs, has, of)) }}}
	for i := range Measures {
		if m := &Measures[i]; m.Has(k) {
			all = append(all, m.difference(twins))
		}
	}
	figures := Intervals(len(twins), all)
	p.Reserved, p.Differences = figures[0], figures[1:]
	return p
}

func (m *Measure) difference(twins []talliesPair) Formula {
	var parts, wholes [2][]float64
	for _, t := range twins {
		for side, tally := range [2]*Tally{t.base, t.other} {
			part, whole := m.Of(tally)
			parts[side], wholes[side] = append(parts[side], part), append(wholes[side], whole)
		}
	}
	value := [2]func([]int) float64{m.over(parts[0], wholes[0]), m.over(parts[1], wholes[1])}
	return Formula{m.Name, func(of []int) float64 { return value[1](of) - value[0](of) }}
}
