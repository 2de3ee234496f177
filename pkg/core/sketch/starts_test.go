package sketch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func startNeeds() Needs {
	return Needs{Start: 3 * time.Minute, Load: ofCPU(calm()), Tracked: trackedShape()}
}

func level(t *Sketch) float64 { return t.Load[resources.CPU].Level(0, t.Now) }

func TestNeeds_Starting(t *testing.T) {
	n := startNeeds()
	require.False(t, n.Starting(-time.Second, 0), "from before the start")
	require.True(t, n.Starting(0, 0))
	require.True(t, n.Starting(3*time.Minute-1, 0))
	require.False(t, n.Starting(3*time.Minute, 0))
	require.True(t, n.Starting(7*time.Minute, 5*time.Minute), "a boost makes it longer")
	require.False(t, n.Starting(8*time.Minute, 5*time.Minute))
	require.False(t, new(Needs).Starting(0, time.Hour), "nobody asks")
}

func TestStarts_AreIgnoredWithOtherUsage(t *testing.T) {
	with, without := New(startNeeds()), New(startNeeds())
	for i := range 200 {
		now := start.Add(time.Duration(i) * time.Minute)
		with.Observe(now, resources.CPU, 100, 0)
		without.Observe(now, resources.CPU, 100, 0)
		with.ObserveStart("other", now, 2000, 0)
	}
	require.Equal(t, without.Image(), with.Image())
}

func TestStarts_CountWithoutOtherUsage(t *testing.T) {
	tr := New(startNeeds())
	for i := range 60 {
		tr.ObserveStart("job", start.Add(time.Duration(i)*time.Hour), 2000, 0)
	}
	require.InDelta(t, 2000, level(tr), 110)
	again, err := Read(startNeeds(), tr.Image(), start, 0)
	require.NoError(t, err)
	for _, s := range []*Sketch{tr, again} {
		s.ObserveStart("job", start.Add(60*time.Hour), 4000, 0)
		require.InDelta(t, 2000, level(s), 110)
		s.Observe(start.Add(61*time.Hour), resources.CPU, 100, 0)
		require.InDelta(t, 100, level(s), 6, "the first other use makes starts forgotten")
		covered, known := s.Coverage(resources.CPU)
		require.True(t, known)
		require.Zero(t, covered)
		s.ObserveStart("job", start.Add(62*time.Hour), 4000, 0)
		require.InDelta(t, 100, level(s), 6)
	}
}

func TestStarts_AreRemovedFromHours(t *testing.T) {
	needs := startNeeds()
	needs.Hours, needs.Pressure = bothKinds, true
	tr := New(needs)
	tr.ObserveStart("job", start, 2000, 0)
	tr.ObservePressure(start, 2000, 0.5)
	require.InEpsilon(t, 3000, tr.PressureHours.Highest(), 0.002)
	tr.Observe(start.Add(10*time.Minute), resources.CPU, 100, 0)
	require.InEpsilon(t, 100, tr.Hours[resources.CPU].Highest(), 0.002)
	require.Nil(t, tr.PressureHours)
	tr.ObserveStart("job", start.Add(20*time.Minute), 2000, 0)
	require.InEpsilon(t, 100, tr.Hours[resources.CPU].Highest(), 0.002)
}

func TestStarts_AreKeptIfRecipeCountsThem(t *testing.T) {
	tr := New(startNeeds())
	tr.ObserveStart("a", start, 2000, 0)
	tr.Adapt(Needs{Load: ofCPU(calm())})
	tr.Observe(start.Add(time.Minute), resources.CPU, 100, 0)
	require.InDelta(t, 2000, level(tr), 110)
}

func TestStarts_MergeDropsThemWithOtherUsage(t *testing.T) {
	of := func(starts, others int) *Sketch {
		tr := New(startNeeds())
		for i := range others {
			tr.Observe(start.Add(time.Duration(i)*time.Minute), resources.CPU, 100, 0)
		}
		for i := range starts {
			tr.ObserveStart("a", start.Add(time.Duration(i)*time.Minute), 2000, 0)
		}
		return tr
	}
	tr := of(30, 0)
	tr.Merge(of(0, 30))
	require.InDelta(t, 100, level(tr), 6)
	tr = of(0, 0)
	tr.Merge(of(30, 0))
	require.InDelta(t, 2000, level(tr), 110)
	tr.Observe(start.Add(time.Hour), resources.CPU, 100, 0)
	require.InDelta(t, 100, level(tr), 6, "it is known that they are starts")
	tr = of(30, 0)
	tr.Merge(of(0, 0))
	tr.Observe(start.Add(time.Hour), resources.CPU, 100, 0)
	require.InDelta(t, 100, level(tr), 6)
}
