package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestPodFit_MatchesPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := DefaultSetup(resources.CPU, resources.Memory)
		s.Limits[resources.CPU] = Limit{LimitPolicy(rapid.IntRange(0, 2).Draw(t, "policy")), 1.5}
		r := &Recording{At: []int64{0, 60e9}, Use: [resources.Kinds][]float64{{100, 200}, {1e6, 2e6}}}
		p := newPod(r, s)
		p.rules.SeparateMemoryLimit = rapid.Bool().Draw(t, "separate")
		for range 20 {
			draw := func(name string) resources.List {
				return resources.NewList(resources.Amount(rapid.IntRange(1, 4).Draw(t, name)), resources.Amount(rapid.IntRange(1, 4).Draw(t, name+" memory"))<<20)
			}
			b := resources.Bounds{Lower: draw("lower"), Target: draw("target"), Upper: draw("upper")}
			if rapid.Bool().Draw(t, "only CPU") {
				b.Lower, b.Target, b.Upper = b.Lower.Without(resources.Memory), b.Target.Without(resources.Memory), b.Upper.Without(resources.Memory)
			}
			p.fit(b)
			require.Equal(t, p.fitted(b), p.container().Target)
		}
	})
}

func TestPod_SkipsPlannerOnlyIfUnchanged(t *testing.T) {
	asked, left := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := DefaultSetup(resources.CPU, resources.Memory)
		r := &Recording{At: []int64{0, 60e9}, Use: [resources.Kinds][]float64{{100, 200}, {1e6, 2e6}}}
		draw := func(name string) resources.List {
			drawn := resources.List{}
			for k := range resources.Kind(resources.Kinds) {
				if a := rapid.IntRange(0, 40).Draw(t, name); a > 0 {
					drawn = drawn.With(k, resources.Amount(900+10*a))
				}
			}
			return drawn
		}
		p := newPod(r, s)
		p.rules.SeparateMemoryLimit = rapid.Bool().Draw(t, "separate")
		p.container().Actual.Requests = draw("requests")
		p.container().Actual.Limits = draw("limits").Without(resources.CPU)
		p.fit(resources.Bounds{Lower: draw("lower"), Target: draw("target"), Upper: draw("upper")})
		if rapid.IntRange(0, 9).Draw(t, "killed") == 0 {
			p.recordKill(0, int64(time.Minute))
		}
		now := time.Unix(0, 0).Add(time.Duration(rapid.IntRange(0, 24).Draw(t, "hours")) * time.Hour)
		if !p.isUnchanged(now) {
			asked++
			return
		}
		left++
		require.NotEmpty(t, disruption.Assess(&p.view.VPAs[0], p.pod(), s.Update.Planner, now).Reason)
	})
	require.Positive(t, asked)
	require.Positive(t, left)
}

func TestInitialLimit(t *testing.T) {
	r := &Recording{Requests: resources.NewList(100, 1000), Limits: resources.NewList(300, 1500)}
	for _, tc := range []struct {
		name    string
		limit   Limit
		kind    resources.Kind
		request resources.Amount
		want    resources.Amount
	}{
		{name: "no limit", kind: resources.CPU, request: 200},
		{name: "limit equal to the request", limit: Limit{Proportional, 1}, kind: resources.CPU, request: 200, want: 200},
		{name: "limit in proportion to the request", limit: Limit{Proportional, 1.2}, kind: resources.Memory, request: 2000, want: 2400},
		{name: "recorded CPU ratio", limit: Limit{Policy: KeepRatio}, kind: resources.CPU, request: 200, want: 600},
		{name: "recorded memory ratio", limit: Limit{Policy: KeepRatio}, kind: resources.Memory, request: 2000, want: 3000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, initialLimit(r, tc.limit, tc.kind, tc.request))
		})
	}
	unknown := &Recording{Limits: resources.NewList(300, 0)}
	require.Equal(t, resources.Amount(200), initialLimit(unknown, Limit{Policy: KeepRatio}, resources.CPU, 200), "equal without a recorded request")
	require.Equal(t, resources.Amount(300), InitialRequests(unknown, DefaultSetup()).Value(resources.CPU), "the limit is the request then")
}
