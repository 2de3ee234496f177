package replay

import (
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

// SimulatedRecommender is the recommender of a cluster with one container.
type SimulatedRecommender struct {
	store   *usage.Store
	series  usage.Series
	key     usage.ContainerKey
	recipe  *recipe.Recipe
	sketch  *sketch.Sketch        // nil if the recipe needs none
	unused  [resources.Kinds]bool // resources of which only sample times matter
	started time.Time             // container start, zero = unknown
	kills   int
}

// NewSimulatedRecommender returns a recommender with a recipe.
func NewSimulatedRecommender(c usage.StoreConfig, recipe *recipe.Recipe, start time.Time) *SimulatedRecommender {
	const name = Container
	a := &SimulatedRecommender{recipe: recipe, key: usage.ContainerKey{Namespace: name, Pod: name, Container: name}}
	if recipe.Needs.Any() {
		a.sketch = sketch.New(recipe.Needs)
	}
	for k := range a.unused {
		a.unused[k] = len(recipe.Target[k])+len(recipe.Lower[k])+len(recipe.Upper[k]) == 0
	}
	if a.unused[resources.CPU] {
		c.Shape = c.Shape.WithoutCPUDecay()
	}
	a.store = usage.NewStore(c)
	a.series, _ = a.store.Track(a.key, usage.SeriesKey{Namespace: name, Container: name}, start)
	return a
}

// Declare sets the declared memory request in bytes, and the limit that follows it, 0 = none.
func (a *SimulatedRecommender) Declare(request, limit resources.Amount) {
	if a.sketch != nil {
		a.sketch.SetLimitRatio(sketch.LimitRatioOf(request, limit))
		a.sketch.SetDeclared(request)
	}
}

// Observe implements Advisor.
func (a *SimulatedRecommender) Observe(at time.Time, k resources.Kind, use, limit resources.Amount) {
	switch {
	case a.sketch == nil:
	case k == resources.CPU && a.starting(at):
		a.sketch.ObserveStart("", at, use, limit)
	default:
		a.sketch.Observe(at, k, use, limit)
	}
	// A recipe reads the histograms of the resources that it estimates, and the times of CPU
	// samples, which determine the confidence for both resources.
	switch {
	case a.unused[k] && k == resources.Memory:
		return
	case a.unused[k]:
		use = 0
	}
	a.store.Observe(usage.Sample{Container: a.key, Kind: k, At: at, Amount: use})
}

func (a *SimulatedRecommender) starting(at time.Time) bool {
	return a.recipe.Needs.Starting(at.Sub(a.started), 0)
}

// Started implements StartObserver.
func (a *SimulatedRecommender) Started(at time.Time) { a.started = at }

// ObservePressure implements PressureObserver.
func (a *SimulatedRecommender) ObservePressure(at time.Time, use resources.Amount, share float64) {
	if a.sketch != nil && !a.starting(at) {
		a.sketch.ObservePressure(at, use, share)
	}
}

// Killed implements Advisor.
func (a *SimulatedRecommender) Killed(at time.Time, request, limit resources.Amount) {
	if a.sketch != nil {
		a.sketch.ObserveKill(at, request, limit)
	}
	a.kills++
	a.store.ObserveOOM(usage.OOM{Container: a.key, At: at, Memory: request, Limit: limit, ID: strconv.Itoa(a.kills)})
}

// Advise implements Advisor. As in a cluster, it omits resources without history.
func (a *SimulatedRecommender) Advise(_ time.Time, current resources.List) resources.Bounds {
	result := a.recipe.Recommend(a.input(current))
	if result.Ready == [resources.Kinds]bool{} {
		return resources.Bounds{}
	}
	result.SaveTargets(a.sketch)
	b := result.Bounds
	for k := range resources.Kind(resources.Kinds) {
		if !result.Ready[k] {
			b.Lower, b.Target, b.Upper = b.Lower.Without(k), b.Target.Without(k), b.Upper.Without(k)
		}
	}
	return b
}

// SeparateMemoryLimit implements LimitSeparator.
func (a *SimulatedRecommender) SeparateMemoryLimit() bool { return a.recipe.SeparateMemoryLimit }

// Explain returns the intermediate amounts of the current recommendation.
func (a *SimulatedRecommender) Explain(_ time.Time, current resources.List) recipe.Explanation {
	return a.recipe.Explain(a.input(current))
}

func (a *SimulatedRecommender) input(current resources.List) recipe.Input {
	return recipe.Input{Profile: a.store.ProfileOf(a.series), Sketch: a.sketch, Containers: 1, Current: current}
}

// Fixed always recommends the same requests, and nothing for absent resources.
type Fixed struct{ Size resources.List }

// Observe implements Advisor.
func (f Fixed) Observe(time.Time, resources.Kind, resources.Amount, resources.Amount) {}

// Killed implements Advisor.
func (f Fixed) Killed(time.Time, resources.Amount, resources.Amount) {}

// Advise implements Advisor.
func (f Fixed) Advise(time.Time, resources.List) resources.Bounds {
	return resources.Bounds{Lower: f.Size, Target: f.Size, Upper: f.Size}
}

// Bounds of a moving maximum as multiples of its target.
const (
	maxLower, maxUpper = 0.95, 1.3
	killRatio          = 1.2 // a kill counts as usage of 1.2 times the limit
)

// MovingMax recommends the highest usage within a window plus a margin.
type MovingMax struct {
	window time.Duration
	margin float64
	peaks  [resources.Kinds][]peak // in descending order, the first is the maximum of the window
}

type peak struct {
	at  int64
	use resources.Amount
}

// NewMovingMax returns a MovingMax with a margin as a fraction.
func NewMovingMax(window time.Duration, margin float64) *MovingMax {
	return &MovingMax{window: window, margin: margin}
}

// Observe implements Advisor.
func (m *MovingMax) Observe(at time.Time, k resources.Kind, use, _ resources.Amount) {
	peaks := m.peaks[k]
	for len(peaks) > 0 && peaks[len(peaks)-1].use <= use {
		peaks = peaks[:len(peaks)-1]
	}
	m.peaks[k] = append(peaks, peak{at.UnixNano(), use})
}

// Killed implements Advisor.
func (m *MovingMax) Killed(at time.Time, _, limit resources.Amount) {
	m.Observe(at, resources.Memory, limit.Scale(killRatio), limit)
}

// Advise implements Advisor.
func (m *MovingMax) Advise(now time.Time, _ resources.List) resources.Bounds {
	var b resources.Bounds
	for k := range resources.Kind(resources.Kinds) {
		peaks := m.peaks[k]
		for len(peaks) > 0 && peaks[0].at <= now.UnixNano()-int64(m.window) {
			peaks = peaks[1:]
		}
		m.peaks[k] = peaks
		if len(peaks) == 0 {
			continue
		}
		target := max(peaks[0].use.Scale(1+m.margin), 1)
		b.Target = b.Target.With(k, target)
		b.Lower = b.Lower.With(k, target.Scale(maxLower))
		b.Upper = b.Upper.With(k, target.Scale(maxUpper))
	}
	return b
}
