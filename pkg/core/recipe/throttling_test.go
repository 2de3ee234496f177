package recipe

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// bursting is a process with bursts far shorter than the measurement interval.
type bursting struct{ much, little, share float64 } // millicores, millicores, 0 to 1

// requests returns the request after each minute in millicores. The limit is a multiple of it.
// Usage and the throttled share are five-minute means, as in Prometheus.
func (b bursting) requests(t *testing.T, text string, first, limit float64, known bool, minutes int) (requests []float64) {
	r, request := parsed(t, text), first
	s := sketch.New(r.Needs)
	for m := range minutes {
		requests = append(requests, request)
		use, throttled := 0.0, 0.0
		window := requests[max(m-4, 0):]
		for _, r := range window {
			use += (b.share*min(b.much, r*limit) + (1-b.share)*min(b.little, r*limit)) / float64(len(window))
			if known && b.much > r*limit {
				throttled += b.share / float64(len(window))
			}
		}
		s.ObserveUse("", start.Add(time.Duration(m)*time.Minute), resources.CPU, sketch.Usage{
			Amount: resources.FromFloat(use), Limit: resources.FromFloat(request * limit), Request: resources.FromFloat(request), Throttled: throttled,
		})
		bounds := r.Recommend(Input{Sketch: s, Containers: 1}).Bounds
		if request < float64(bounds.Lower.Value(resources.CPU)) || request > float64(bounds.Upper.Value(resources.CPU)) {
			request = float64(bounds.Target.Value(resources.CPU))
		}
	}
	return requests
}

// Mean usage alone yields far lower limits.
func TestThrottling_FindsLimitForBursts(t *testing.T) {
	const day, days = 24 * 60, 14
	for _, text := range []string{"loadline", "loadline:cpu=calm-lean", "loadline:cpu=tracking", "loadline:cpu=mixed"} {
		for _, limit := range []float64{1, 4} {
			for _, b := range []bursting{{500, 50, 0.1}, {3000, 50, 0.2}, {900, 300, 0.06}} {
				with := b.requests(t, text, 100, limit, true, days*day)
				high := slices.IndexFunc(with, func(r float64) bool { return r*limit >= b.much })
				require.Less(t, high, 8*60, "%s, limit %g x: %v", text, limit, b)
				require.NotEqual(t, -1, high, "%s, limit %g x: %v", text, limit, b)
				require.LessOrEqual(t, slices.Max(with)*limit, 2*b.much*1.2, "%s, limit %g x: %v", text, limit, b)
				changes, served := 0, 0
				for m := day; m < days*day; m++ {
					if with[m] != with[m-1] {
						changes++
					}
					if with[m]*limit >= b.much {
						served++
					}
				}
				require.LessOrEqual(t, changes, 2*days, "%s, limit %g x: %v", text, limit, b)
				require.Greater(t, float64(served)/float64((days-1)*day), 0.9, "%s, limit %g x: %v", text, limit, b)
			}
		}
		b := bursting{500, 50, 0.1}
		require.Less(t, slices.Max(b.requests(t, text, 100, 1, false, day)[60:]), 150.0, "means know nothing of it")
	}
}

func TestThrottling_IgnoresRareOrUncounted(t *testing.T) {
	b := bursting{500, 50, 0.04}
	require.Equal(t, b.requests(t, "loadline", 100, 1, false, 1440), b.requests(t, "loadline", 100, 1, true, 1440), "a twenty-fifth of the time")
	b.share = 0.2
	for _, tc := range []struct {
		name   string
		recipe string
		counts bool
	}{
		{name: "loadline", recipe: "loadline", counts: true},
		{name: "loadline without throttling", recipe: "loadline:throttling=no"},
		{name: "autopilot", recipe: "autopilot"},
		{name: "autopilot ensemble", recipe: "autopilot:models=ensemble"},
		{name: "CruiseKube", recipe: "cruisekube"},
		{name: "crane", recipe: "crane"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := parsed(t, tc.recipe)
			require.Equal(t, tc.counts, r.Needs.Throttling())
			target := func(throttled float64) resources.List {
				s := sketch.New(r.Needs)
				for m := range 1440 {
					use := sketch.Usage{Amount: 60, Limit: 100, Throttled: throttled}
					s.ObserveUse("", start.Add(time.Duration(m)*time.Minute), resources.CPU, use)
				}
				return r.Recommend(Input{Profile: past(1, []float64{60}, 1), Sketch: s, Containers: 1}).Bounds.Target
			}
			require.Equal(t, tc.counts, target(0) != target(0.2))
			require.Equal(t, target(0), target(math.NaN()))
		})
	}
}
