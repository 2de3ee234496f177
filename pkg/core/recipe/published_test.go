package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// The worked examples of the published systems, fed as samples like in the recommender.
func TestRecipes_PublishedExamplesAreExact(t *testing.T) {
	const week = 7*24*time.Hour + 10*time.Minute
	for _, tc := range []struct {
		name, recipe string
		kind         resources.Kind
		use          resources.Amount
		length       time.Duration
		current      resources.List
		want         resources.Amount
	}{
		{name: "attune: use and request are equal", recipe: "attune:cpu-overhead=0", kind: resources.CPU, use: 200, length: week, current: resources.NewList(200, 0), want: 200},
		{name: "attune: 9 % of change is noise", recipe: "attune:cpu-overhead=0,confidence-multiplier=0", kind: resources.CPU, use: 109, length: week, current: resources.NewList(100, 0), want: 100},
		{name: "attune: 10 % of change passes", recipe: "attune:cpu-overhead=0,confidence-multiplier=0", kind: resources.CPU, use: 110, length: week, current: resources.NewList(100, 0), want: 110},
		{name: "attune: overhead of 20 %", recipe: "attune:confidence-multiplier=0", kind: resources.CPU, use: 200, length: week, want: 240},
		{name: "attune: a fall is capped", recipe: "attune:confidence-multiplier=0", kind: resources.CPU, use: 200, length: week, current: resources.NewList(500, 0), want: 250},
		{name: "attune: memory is capped", recipe: "attune:memory-overhead=0", kind: resources.Memory, use: 1e9, length: week, current: resources.NewList(0, 100<<20), want: 130 << 20},
		{name: "attune: memory of 300Mi", recipe: "attune:memory-overhead=30,confidence-multiplier=0", kind: resources.Memory, use: 300 << 20, length: week, want: 390 << 20},
		{name: "attune: no least change", recipe: "attune:cpu-overhead=0,min-change=0,confidence-multiplier=0", kind: resources.CPU, use: 109, length: week, current: resources.NewList(100, 0), want: 109},
		{name: "crane: 0.12 cores", recipe: "crane", kind: resources.CPU, use: 120, length: week, want: 229},
		{name: "crane: 0.002 cores", recipe: "crane", kind: resources.CPU, use: 2, length: week, want: 114},
		{name: "crane: 200 MB", recipe: "crane", kind: resources.Memory, use: 200e6, length: week, want: 241172479},
		{name: "cruisekube: peak", recipe: "cruisekube", kind: resources.CPU, use: 500, length: week, want: 500},
		{name: "autopilot: the highest memory", recipe: "autopilot:memory-margin=0", kind: resources.Memory, use: 700e6, length: week, want: 700e6},
		{name: "autopilot: the highest memory and a margin", recipe: "autopilot", kind: resources.Memory, use: 300 << 20, length: week, want: 330 << 20},
		{name: "autopilot: memory of 1 GB", recipe: "autopilot", kind: resources.Memory, use: 1e9, length: week, want: 1100e6},
		{name: "cruisekube: memory", recipe: "cruisekube", kind: resources.Memory, use: 700e6, length: week, want: 700e6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.recipe)
			l.use(tc.kind, tc.use, tc.length)
			b := l.recipe.Recommend(Input{Sketch: l.sketch, Containers: 1, Current: tc.current}).Bounds
			require.Equal(t, tc.want, b.Target.Value(tc.kind))
		})
	}
}

func TestCruiseKube_BaseAndPeakAreExact(t *testing.T) {
	for k, amounts := range map[resources.Kind][2]resources.Amount{resources.CPU: {500, 1500}, resources.Memory: {400e6, 600e6}} {
		l := live(t, "cruisekube")
		l.use(k, amounts[1], 10*time.Minute)
		l.use(k, amounts[0], 45*time.Minute)
		b := l.recipe.Recommend(Input{Sketch: l.sketch, Containers: 1}).Bounds
		require.Equal(t, amounts[0], b.Lower.Value(k), "base of %s", k)
		require.Equal(t, amounts[1], b.Target.Value(k), "peak of %s", k)
	}
}

func TestAttune_ConfidenceSettings(t *testing.T) {
	for _, tc := range []struct {
		name  string
		doubt ConfidenceFormula
		want  float64
	}{
		{name: "as shipped", doubt: ConfidenceFormula{Multiplier: 1, Exponent: 2}, want: 1.25},
		{name: "twice as much", doubt: ConfidenceFormula{Multiplier: 2, Exponent: 2}, want: 1.5},
		{name: "linear", doubt: ConfidenceFormula{Multiplier: 1, Exponent: 1}, want: 1.5},
		{name: "none", doubt: ConfidenceFormula{Exponent: 2}, want: 1},
		{name: "as published", doubt: ConfidenceFormula{Published: true, Multiplier: 1, Exponent: 2}, want: 9},
		{name: "as published, of another multiplier", doubt: ConfidenceFormula{Published: true, Multiplier: 0.5, Exponent: 1}, want: 2},
	} {
		t.Run(tc.name, func(t *testing.T) { require.InDelta(t, tc.want, tc.doubt.Factor(0.5), 1e-12) })
	}
	_, err := Parse("attune-published:confidence-multiplier=2,confidence-exponent=1.5,min-change=5")
	require.NoError(t, err)
}

func TestAttune_Insights(t *testing.T) {
	l := live(t, "attune:cpu-burst-sensitivity=0.2")
	l.use(resources.CPU, 800, 5*time.Minute)
	l.use(resources.CPU, 100, 10*time.Hour)
	all, found := l.recipe.Insights(l.sketch)
	require.True(t, found)
	require.Equal(t, 120, all[resources.CPU].Points)
	require.InDelta(t, 1.6, all[resources.CPU].Burst, 1e-9, "magnitude 8")
	require.Positive(t, all[resources.CPU].Confidence)
	e := l.recipe.Explain(Input{Sketch: l.sketch, Containers: 1})
	require.Equal(t, "burst, sensitivity 0.2: x 1.6, magnitude 8", e.Target[resources.CPU][2].Step)
	require.Regexp(t, `^confidence 0\.0\d+ of 120 points: x 1\.\d+$`, e.Target[resources.CPU][3].Step)

	_, found = live(t, "crane").recipe.Insights(l.sketch)
	require.False(t, found)
}
