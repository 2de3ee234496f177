package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// Each estimator forgets the time between runs differently.
func TestLoadline_JobKeepsRequestBetweenRuns(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name   string
		recipe string
		apart  time.Duration
		known  [resources.Kinds]bool
	}{
		{name: "default every day", recipe: "loadline", apart: day, known: [resources.Kinds]bool{true, true}},
		{name: "default every week", recipe: "loadline", apart: 7 * day, known: [resources.Kinds]bool{true, true}},
		{name: "default every 13 days", recipe: "loadline", apart: 13 * day, known: [resources.Kinds]bool{false, true}},
		{name: "default every 30 days", recipe: "loadline", apart: 30 * day, known: [resources.Kinds]bool{false, true}},
		{name: "tracking every hour", recipe: "loadline:cpu=tracking", apart: time.Hour, known: [resources.Kinds]bool{true, true}},
		{name: "tracking every day", recipe: "loadline:cpu=tracking", apart: day, known: [resources.Kinds]bool{false, true}},
		{name: "mixed every week", recipe: "loadline:cpu=mixed", apart: 7 * day, known: [resources.Kinds]bool{true, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := parsed(t, tc.recipe)
			s := sketch.New(r.Needs)
			target := func() resources.List {
				return r.Recommend(Input{Profile: past(1, []float64{60}, 1), Sketch: s, Containers: 1}).Bounds.Target
			}
			for run := range 8 {
				if run > 2 {
					require.GreaterOrEqual(t, target().Value(resources.CPU), resources.Amount(2000), "before a run")
				}
				for m := range 10 {
					at := start.Add(time.Duration(run)*tc.apart + time.Duration(m)*time.Minute)
					cpu, memory := resources.Amount(100), resources.Amount(50<<20)
					if m >= 5 {
						cpu, memory = 2000, 400<<20
					}
					s.Observe(at, resources.CPU, cpu, 0)
					s.Observe(at, resources.Memory, memory, 0)
					if run > 2 && m == 4 {
						now := target()
						require.Equal(t, tc.known[resources.CPU], now.Value(resources.CPU) >= 2000, "%v", now)
						require.Equal(t, tc.known[resources.Memory], now.Value(resources.Memory) >= 400<<20, "%v", now)
					}
				}
			}
		})
	}
}
