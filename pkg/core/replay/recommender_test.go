package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

func TestSimulatedRecommender_SingleResourceMatchesBoth(t *testing.T) {
	for _, text := range []string{
		"vpa:pod-min-cpu=1,pod-min-memory=1", "loadline:pod-min-cpu=1,pod-min-memory=1", "loadline:cpu=mixed", "loadline:cpu=tracking", "loadline:cpu=shared", "loadline:memory=following", "autopilot", "crane", "cruisekube",
	} {
		t.Run(text, func(t *testing.T) {
			chains, err := recipe.Parse(text)
			require.NoError(t, err)
			requireSingleMatchesBoth(t, &chains)
		})
	}
	chains, err := recipe.Parse("loadline")
	require.NoError(t, err)
	require.Nil(t, sketch.New(chains.ForKind(resources.CPU).Needs).Peaks, "nor is more remembered")
	require.Nil(t, sketch.New(chains.ForKind(resources.Memory).Needs).Load[resources.CPU])
}

func requireSingleMatchesBoth(t *testing.T, chains *recipe.Recipe) {
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	cluster := func(r *recipe.Recipe) *SimulatedRecommender {
		return NewSimulatedRecommender(usage.DefaultConfig(), r, start)
	}
	both, single := cluster(chains), [resources.Kinds]*SimulatedRecommender{cluster(chains.ForKind(resources.CPU)), cluster(chains.ForKind(resources.Memory))}
	require.Equal(t, [resources.Kinds]bool{false, true}, single[resources.CPU].unused)
	require.Equal(t, [resources.Kinds]bool{true, false}, single[resources.Memory].unused)
	all := append(single[:], both)
	for minute := range 3 * 1440 {
		now := start.Add(time.Duration(minute) * time.Minute)
		if minute > 100 && minute < 900 {
			continue // a gap
		}
		for _, c := range all {
			if minute%700 == 0 {
				c.Started(now)
			}
			use := resources.Amount(minute * 7919 % 4000)
			c.Observe(now, resources.CPU, use, 0)
			c.ObservePressure(now, use, 0.2)
			if minute > 5 {
				c.Observe(now, resources.Memory, resources.Amount(1<<28+minute*104729%(1<<30)), 0)
			}
			if minute == 2000 {
				c.Killed(now, 1<<30, 3<<29)
			}
		}
		want := both.Advise(now, resources.List{})
		for k, c := range single {
			k, got := resources.Kind(k), c.Advise(now, resources.List{})
			require.Equal(t, want.Target.Value(k), got.Target.Value(k), minute)
			require.Equal(t, want.Lower.Value(k), got.Lower.Value(k), minute)
			require.Equal(t, want.Upper.Value(k), got.Upper.Value(k), minute)
		}
	}
}

func TestSimulatedRecommender_StartupUsage(t *testing.T) {
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	target := func(text string, tells bool) resources.Amount {
		chains, err := recipe.Parse(text)
		require.NoError(t, err)
		a := NewSimulatedRecommender(usage.DefaultConfig(), &chains, start)
		for minute := range 300 {
			now, use := start.Add(time.Duration(minute)*time.Minute), resources.Amount(100)
			if minute%10 == 0 && tells {
				a.Started(now)
			}
			if minute%10 < 3 {
				use = 2000
			}
			a.Observe(now, resources.CPU, use, 0)
			a.ObservePressure(now, use, 0.3)
		}
		return a.Advise(start.Add(300*time.Minute), resources.List{}).Target.Value(resources.CPU)
	}
	require.Less(t, target("loadline", true), resources.Amount(120))
	require.Less(t, target("loadline:cpu=shared", true), resources.Amount(140), "for a third of the time work waited")
	require.Greater(t, target("loadline", false), resources.Amount(2000))
	require.Equal(t, resources.Amount(2600), target("loadline:cpu=shared", false), "2000m, and 30 % for the time that work waited")
	require.Greater(t, target("loadline:start-minutes=0", true), resources.Amount(2000))
	require.Equal(t, target("vpa", false), target("vpa", true))
}
