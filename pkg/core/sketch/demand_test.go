package sketch

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestDemand_FromUsageUnderLimit(t *testing.T) {
	for _, tc := range []struct {
		name string
		use  Usage
		want float64
	}{
		{name: "no limit", use: Usage{Amount: 300}, want: 300},
		{name: "throttled by an unknown limit", use: Usage{Amount: 300, Throttled: 0.5}, want: 300},
		{name: "below the limit", use: Usage{Amount: 300, Limit: 1000}, want: 300},
		{name: "at the limit", use: Usage{Amount: 980, Limit: 1000}, want: 2000},
		{name: "throttled at the limit", use: Usage{Amount: 980, Limit: 1000, Request: 100, Throttled: 0.1}, want: 2000},
		{name: "throttled for a twentieth of the time", use: Usage{Amount: 280, Limit: 1000, Throttled: 0.05}, want: 2000},
		{name: "throttled for less than a twentieth", use: Usage{Amount: 280, Limit: 1000, Throttled: 0.049}, want: 280},
		{name: "throttled all the time", use: Usage{Amount: 900, Limit: 1000, Throttled: 1}, want: 2000},
		{name: "throttled with a request below the limit", use: Usage{Amount: 280, Limit: 1000, Request: 200, Throttled: 0.1}, want: 400},
		{name: "throttled with a request far below usage", use: Usage{Amount: 280, Limit: 1000, Request: 100, Throttled: 0.1}, want: 280},
		{name: "throttled with a request above the limit", use: Usage{Amount: 280, Limit: 1000, Request: 3000, Throttled: 0.1}, want: 2000},
		{
			name: "throttled under a fixed limit",
			use:  Usage{Amount: 280, Limit: 1000, Request: 200, FixedLimit: true, Throttled: 0.9},
			want: 280,
		},
		{name: "at a fixed limit", use: Usage{Amount: 1000, Limit: 1000, Request: 200, FixedLimit: true, Throttled: 0.9}, want: 2000},
		{name: "usage below a twentieth of the limit", use: Usage{Amount: 49, Limit: 1000, Throttled: 0.9}, want: 49},
		{name: "throttled share of a million", use: Usage{Amount: 250, Limit: 1000, Throttled: 1e6}, want: 2000},
		{name: "throttled share is not a number", use: Usage{Amount: 250, Limit: 1000, Throttled: math.NaN()}, want: 250},
		{name: "negative throttled share", use: Usage{Amount: 250, Limit: 1000, Throttled: -1}, want: 250},
		{name: "no usage", use: Usage{Limit: 1000, Throttled: 0.5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _ := New(Needs{Load: ofCPU(calm().Throttling())}).demand(start.UnixNano(), tc.use)
			require.InDelta(t, tc.want, got, 1e-9)

			plain := tc.use
			plain.Throttled = 0
			for _, needs := range []Needs{{}, {Load: ofCPU(calm())}} {
				want, _ := New(needs).demand(start.UnixNano(), plain)
				got, throttled := New(needs).demand(start.UnixNano(), tc.use)
				require.Equal(t, want, got, "throttling counts only if needed")
				require.Zero(t, throttled)
			}
		})
	}
}

func throttledFor(tr *Sketch, minutes int, use, limit resources.Amount, share float64) float64 {
	from, last := time.Unix(0, max(tr.Now, start.UnixNano())), 0.0
	for m := range minutes {
		at, u := from.Add(time.Duration(m+1)*time.Minute), Usage{Amount: use, Limit: limit, Throttled: share}
		last, _ = tr.demand(at.UnixNano(), u)
		tr.ObserveUse("", at, resources.CPU, u)
	}
	return last
}

// If the throttled share has just raised the limit, twice the new limit would raise it again and
// again.
func TestDemand_UsesLowestRecentLimit(t *testing.T) {
	tr := New(Needs{Load: ofCPU(calm().Throttling())})
	require.InEpsilon(t, 200, throttledFor(tr, 1, 60, 100, 0.5), 0.002)
	require.InEpsilon(t, 200, throttledFor(tr, 14, 120, 200, 0.5), 0.002)
	require.InEpsilon(t, 400, throttledFor(tr, 30, 120, 200, 0.5), 0.002)
	tr = New(Needs{Load: ofCPU(calm().Throttling())})
	throttledFor(tr, 1, 300, 1000, 0)
	require.InEpsilon(t, 120, throttledFor(tr, 1, 40, 60, 0.5), 0.002, "a lower one counts at once")
	require.InEpsilon(t, 120, throttledFor(tr, 1, 100, 1000, 0.5), 0.002, "for a while")
	require.LessOrEqual(t, throttledFor(New(Needs{Load: ofCPU(calm().Throttling())}), 1, 500, 1001, 1), 2002.0, "though limits are kept rounded up")
}

// The demand has a half-life of a week, and must have raised the load.
func TestThrottledDemand_Decays(t *testing.T) {
	sustained := func() *Sketch { return New(Needs{Load: ofCPU(calm().Sustained(15 * time.Minute).Throttling())}) }
	tr := sustained()
	throttledFor(tr, 120, 30, 200, 0)
	require.Equal(t, 400.0, throttledFor(tr, 14, 60, 200, 0.2))
	require.Zero(t, tr.ThrottledDemand(), "14 minutes are a burst")
	require.Equal(t, 60.0, throttledFor(tr, 1, 60, 200, 0))
	throttledFor(tr, 14, 60, 200, 0.2)
	require.InEpsilon(t, 400, tr.ThrottledDemand(), 0.002)
	require.InEpsilon(t, 400, throttledFor(tr, 20, 60, 420, 0), 0.003, "the limit follows")
	require.InEpsilon(t, 200, throttledFor(tr, 7*24*60, 60, 420, 0), 0.01)
	require.Equal(t, 60.0, throttledFor(tr, 1, 60, 0, 0), "a container without limit is not held back")
	require.InEpsilon(t, 100, throttledFor(tr, 7*24*60, 60, 420, 0), 0.01)

	throttledFor(tr, 84*60, 60, 420, 0)
	require.InEpsilon(t, 71, throttledFor(tr, 20, 20, 30, 0.2), 0.01, "throttled under a low limit it needs what it did under a higher one")
	require.InEpsilon(t, 50, throttledFor(tr, 84*60, 30, 420, 0), 0.02, "which is forgotten all the same")
	late, _ := tr.demand(tr.Now-int64(time.Hour), Usage{Amount: 1, Limit: 420})
	require.InEpsilon(t, 50, late, 0.02, "a sample that comes late")
	fresh := sustained()
	throttledFor(fresh, 60, 60, 200, 0.2)
	late, _ = fresh.demand(fresh.Now-int64(2*time.Hour), Usage{Amount: 1, Limit: 420})
	require.InEpsilon(t, 400, late, 0.002, "one of before anything was known")

	small := sustained()
	for m := range 60 {
		small.ObserveUse("", start.Add(time.Duration(m)*time.Minute), resources.CPU, Usage{Amount: 280, Limit: 1000, Request: 100, Throttled: 0.2})
	}
	require.InEpsilon(t, 200, small.ThrottledDemand(), 0.002, "use that is above is not kept, only what is due to throttling")

	tr.Adapt(Needs{Load: ofCPU(calm().Sustained(15 * time.Minute))})
	require.Zero(t, tr.ThrottledDemand(), "nobody asks any more")
}

func TestThrottledDemand_MergesAndRoundTrips(t *testing.T) {
	tr := New(Needs{Load: ofCPU(calm().Throttling())})
	throttledFor(tr, 60, 60, 200, 0.2)
	require.NotZero(t, tr.ThrottledDemand())
	again, err := Read(Needs{Load: ofCPU(calm().Throttling())}, tr.Image(), start, 0)
	require.NoError(t, err)
	require.Equal(t, tr.throttled, again.throttled)
	fresh := New(Needs{Load: ofCPU(calm().Throttling())})
	fresh.Merge(tr)
	require.Equal(t, tr.ThrottledDemand(), fresh.ThrottledDemand())
	other := New(Needs{Load: ofCPU(calm().Throttling())})
	throttledFor(other, 60, 60, 300, 0.2)
	fresh.Merge(other)
	require.Equal(t, tr.ThrottledDemand(), fresh.ThrottledDemand(), "what is live stays")
	other, err = Read(Needs{Load: ofCPU(calm())}, tr.Image(), start, 0)
	require.NoError(t, err)
	require.Zero(t, other.ThrottledDemand())
}
