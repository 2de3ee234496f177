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
	for _, c := range []struct {
		recipe string
		apart  time.Duration
		known  [resources.Kinds]bool
	}{
		{"loadline", day, [resources.Kinds]bool{true, true}},
		{"loadline", 7 * day, [resources.Kinds]bool{true, true}},
		{"loadline", 13 * day, [resources.Kinds]bool{false, true}},
		{"loadline", 30 * day, [resources.Kinds]bool{false, true}},
		{"loadline:cpu=tracking", time.Hour, [resources.Kinds]bool{true, true}},
		{"loadline:cpu=tracking", day, [resources.Kinds]bool{false, true}},
		{"loadline:cpu=mixed", 7 * day, [resources.Kinds]bool{true, true}},
	} {
		r := parsed(t, c.recipe)
		s := sketch.New(r.Needs)
		target := func() resources.List {
			return r.Recommend(Input{Profile: past(1, []float64{60}, 1), Sketch: s, Containers: 1}).Bounds.Target
		}
		for run := range 8 {
			if run > 2 {
				require.GreaterOrEqual(t, target().Value(resources.CPU), resources.Amount(2000), "%s every %s: before a run", c.recipe, c.apart)
			}
			for m := range 10 {
				at, cpu, memory := start.Add(time.Duration(run)*c.apart+time.Duration(m)*time.Minute), resources.Amount(100), resources.Amount(50<<20)
				if m >= 5 {
					cpu, memory = 2000, 400<<20
				}
				s.Observe(at, resources.CPU, cpu, 0)
				s.Observe(at, resources.Memory, memory, 0)
				if run > 2 && m == 4 {
					now := target()
					require.Equal(t, c.known[resources.CPU], now.Value(resources.CPU) >= 2000, "%s every %s: %v", c.recipe, c.apart, now)
					require.Equal(t, c.known[resources.Memory], now.Value(resources.Memory) >= 400<<20, "%s every %s: %v", c.recipe, c.apart, now)
				}
			}
		}
	}
}
