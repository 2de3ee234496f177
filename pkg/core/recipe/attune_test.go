package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

type loop struct {
	*life
	request resources.List
	changed [resources.Kinds]time.Time
	highest resources.List // highest request so far
}

func closedLoop(t *testing.T, text string, cpu, memory resources.Amount) *loop {
	l := &loop{life: live(t, text), request: resources.NewList(cpu, memory)}
	l.highest = l.request
	return l
}

// run feeds constant usage, with one recommendation a minute.
func (l *loop) run(t *testing.T, cpu, memory resources.Amount, length time.Duration) {
	t.Helper()
	for end := l.at.Add(length); l.at.Before(end); l.at = l.at.Add(time.Minute) {
		for k, use := range []resources.Amount{cpu, memory} {
			l.sketch.Observe(l.at, resources.Kind(k), use, 0)
		}
		result := l.recipe.Recommend(Input{Sketch: l.sketch, Containers: 1, Current: l.request})
		result.SaveTargets(l.sketch)
		for k := range resources.Kind(resources.Kinds) {
			require.Equal(t, l.at.Sub(start) >= 48*five, result.Ready[k], "%s at %s", k, l.at)
			if target := result.Bounds.Target.Value(k); result.Ready[k] && target != l.request.Value(k) {
				require.GreaterOrEqual(t, l.at.Sub(l.changed[k]), time.Hour, "%s at %s, from %d to %d", k, l.at, l.request.Value(k), target)
				l.request, l.changed[k] = l.request.With(k, target), l.at
				l.highest = l.highest.With(k, max(target, l.highest.Value(k)))
			}
		}
	}
}

func multiple(r resources.List, k resources.Kind, use resources.Amount) float64 {
	return float64(r.Value(k)) / float64(use)
}

// Each recommendation becomes the request that the next one starts from, which must converge.
func TestAttune_ConvergesToUsage(t *testing.T) {
	const week = 7*24*time.Hour + time.Hour
	for _, tc := range []struct {
		name        string
		cpu, memory resources.Amount // first requests
	}{
		{name: "first requests below usage", cpu: 100, memory: 128 * mib},
		{name: "first requests above usage", cpu: 2000, memory: 4096 * mib},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := closedLoop(t, "attune:memory-decrease=yes,pod-min-cpu=0", tc.cpu, tc.memory)
			l.run(t, 200, 300*mib, 24*time.Hour)
			require.LessOrEqual(t, multiple(l.highest, resources.CPU, max(200, tc.cpu)), 2.36, "overhead x lack of confidence")
			require.LessOrEqual(t, multiple(l.highest, resources.Memory, max(300*mib, tc.memory)), 2.56)
			l.run(t, 200, 300*mib, week)
			require.InDelta(t, 1.2, multiple(l.request, resources.CPU, 200), 0.121)
			require.InDelta(t, 1.3, multiple(l.request, resources.Memory, 300*mib), 0.13)
		})
	}
	kept := closedLoop(t, "attune", 100, 128*mib)
	kept.run(t, 200, 300*mib, week)
	require.InDelta(t, 2.5, multiple(kept.request, resources.Memory, 300*mib), 0.06)
	require.Equal(t, kept.highest.Value(resources.Memory), kept.request.Value(resources.Memory))
}

func TestAttune_IdleContainerEndsNearMinimum(t *testing.T) {
	l := closedLoop(t, "attune:pod-min-cpu=0", 300, 128*mib)
	l.run(t, 0, 100*mib, 72*time.Hour)
	require.LessOrEqual(t, l.highest.Value(resources.CPU), resources.Amount(300), "usage of 0 never raises the request")
	require.LessOrEqual(t, l.request.Value(resources.CPU), resources.Amount(4))
}

func TestAttune_DecreasesOnlyWhereAllowed(t *testing.T) {
	for _, tc := range []struct {
		name, recipe string
		shrinks      [resources.Kinds]bool
	}{
		{name: "by default", recipe: "attune", shrinks: [resources.Kinds]bool{resources.CPU: true}},
		{name: "both", recipe: "attune:memory-decrease=yes", shrinks: [resources.Kinds]bool{true, true}},
		{name: "neither", recipe: "attune:cpu-decrease=no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := closedLoop(t, tc.recipe, 2000, 4096*mib)
			l.run(t, 200, 300*mib, 48*time.Hour)
			require.Equal(t, tc.shrinks[resources.CPU], l.request.Value(resources.CPU) < 2000)
			require.Equal(t, tc.shrinks[resources.Memory], l.request.Value(resources.Memory) < 4096*mib)
		})
	}
}

// The published formula recommends four times the usage at full confidence, and a hundred times at
// none.
func TestAttunePublished_RisesWithinHours(t *testing.T) {
	l := closedLoop(t, "attune-published:pod-min-cpu=0", 100, 128*mib)
	l.run(t, 200, 300*mib, 5*time.Hour)
	require.LessOrEqual(t, multiple(l.highest, resources.CPU, 100), 1.5*1.5, "an hour after the first recommendation")
	require.LessOrEqual(t, multiple(l.highest, resources.Memory, 128*mib), 1.7)
	l.run(t, 200, 300*mib, 24*time.Hour)
	require.InDelta(t, 4000, float64(l.highest.Value(resources.CPU)), 400, "a change of less than a tenth is none")
	require.InDelta(t, 8<<30, float64(l.highest.Value(resources.Memory)), 0.8*(1<<30))
	l.run(t, 200, 300*mib, 8*24*time.Hour)
	require.InDelta(t, 4.8, multiple(l.request, resources.CPU, 200), 0.48)
	require.Equal(t, l.highest.Value(resources.Memory), l.request.Value(resources.Memory), "it does not shrink")
}

func TestAttune_MemoryFromCPUWaitsForCPUPoints(t *testing.T) {
	l := live(t, "attune:memory-from-cpu-ratio=4")
	l.use(resources.Memory, 100*mib, 5*time.Hour)
	points := func() Points {
		return l.recipe.Recommend(Input{Sketch: l.sketch, Containers: 1}).Points[resources.Memory]
	}
	require.Equal(t, Points{0, 48}, points())
	l.at = start
	l.use(resources.CPU, 500, 3*time.Hour)
	require.Equal(t, Points{35, 48}, points(), "the last one is not complete")
}

// Any other percentile would fall back to 95.
func TestAttune_RejectsUnsupportedPercentiles(t *testing.T) {
	for _, text := range []string{"attune:cpu-percentile=93", "attune-published:memory-percentile=100", "attune:cpu-percentile=0.95"} {
		_, err := Parse(text)
		require.ErrorContains(t, err, "must be one of 50, 90, 95, 99")
	}
	require.Equal(t, "cpu percentile 90 of the week or an hour", parsed(t, "attune:cpu-percentile=90").Target[resources.CPU][0].Name)
}

func TestAttune_UsesPodWithHighestUsage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		recipe string
		want   float64
	}{
		{name: "default", recipe: "attune", want: 900},
		{name: "highest pod", recipe: "attune:pods=max", want: 900},
		{name: "mean of pods", recipe: "attune:pods=mean", want: 300},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			for end := l.at.Add(6 * time.Hour); l.at.Before(end); l.at = l.at.Add(time.Minute) {
				for pod, use := range map[string]resources.Amount{"a": 0, "b": 0, "c": 900} {
					l.sketch.ObservePod(pod, l.at, resources.CPU, use, 0)
				}
			}
			require.InEpsilon(t, tc.want, l.sketch.Points[resources.CPU].Profile().Overall.P95, 0.002)
		})
	}
}

func TestAttune_CapsRequestsAtMaximum(t *testing.T) {
	for _, tc := range []struct {
		name         string
		recipe       string
		kind         resources.Kind
		request, end resources.Amount
	}{
		{name: "CPU within the range stays", recipe: "attune:cpu-decrease=no", kind: resources.CPU, request: 1350, end: 1350},
		{name: "CPU above the range", recipe: "attune:cpu-decrease=no", kind: resources.CPU, request: 12150, end: 4000},
		{name: "CPU above a range of its own", recipe: "attune:cpu-decrease=no,cpu-max=500", kind: resources.CPU, request: 1350, end: 500},
		{name: "memory within the range stays", recipe: "attune", kind: resources.Memory, request: 4096 * mib, end: 4096 * mib},
		{name: "memory above the range", recipe: "attune", kind: resources.Memory, request: 24576 * mib, end: 8192 * mib},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := closedLoop(t, tc.recipe, 300, 512*mib)
			l.request = l.request.With(tc.kind, tc.request)
			l.run(t, 50, 50*mib, 24*time.Hour)
			require.Equal(t, tc.end, l.request.Value(tc.kind))
		})
	}
}
