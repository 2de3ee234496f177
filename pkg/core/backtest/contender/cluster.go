package contender

import (
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/backtest/replay"
	"loadline.dev/loadline/pkg/core/estimate"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/core/usage"
)

// Cluster is the recommender of a cluster that has one container. Make it with
// NewCluster.
type Cluster struct {
	store   *usage.Store
	scratch profile.Profile
	series  usage.Series
	key     usage.ContainerKey
	recipe  *estimate.Recipe
	minimum amount.Resources
	kills   int
}

// NewCluster returns the recommender with a recipe and the least recommendation
// for a container.
func NewCluster(c usage.Config, recipe *estimate.Recipe, minimum amount.Resources, start time.Time) *Cluster {
	const name = replay.Container
	a := &Cluster{
		store: usage.New(c), scratch: profile.New(c.Shape), recipe: recipe, minimum: minimum,
		key: usage.ContainerKey{Namespace: name, Pod: name, Container: name},
	}
	a.series, _ = a.store.Track(a.key, usage.SeriesKey{Namespace: name, Container: name}, start)
	return a
}

// Observe implements replay.Advisor.
func (a *Cluster) Observe(at time.Time, k amount.Kind, use, _ amount.Amount) {
	a.store.Observe(usage.Sample{Container: a.key, Kind: k, At: at, Amount: use})
}

// Killed implements replay.Advisor.
func (a *Cluster) Killed(at time.Time, request, limit amount.Amount) {
	a.kills++
	a.store.ObserveOOM(usage.OOM{Container: a.key, At: at, Memory: request, Limit: limit, ID: strconv.Itoa(a.kills)})
}

// Advise implements replay.Advisor. As in a cluster nothing is recommended
// before the first CPU sample.
func (a *Cluster) Advise(time.Time) amount.Bounds {
	a.merge()
	if a.scratch.Empty() {
		return amount.Bounds{}
	}
	return a.recipe.Bounds(&a.scratch, a.minimum)
}

// Explain returns how the recommendation of this moment comes about.
func (a *Cluster) Explain() estimate.Explanation {
	a.merge()
	return a.recipe.Explain(&a.scratch, a.minimum)
}

func (a *Cluster) merge() {
	a.scratch.Reset()
	a.store.Profile(&a.scratch, a.series)
}
