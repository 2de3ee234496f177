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
	for _, c := range []struct {
		limit   Limit
		k       resources.Kind
		request resources.Amount
		want    resources.Amount
	}{
		{Limit{}, resources.CPU, 200, 0},
		{Limit{Proportional, 1}, resources.CPU, 200, 200},
		{Limit{Proportional, 1.2}, resources.Memory, 2000, 2400},
		{Limit{Policy: KeepRatio}, resources.CPU, 200, 600},
		{Limit{Policy: KeepRatio}, resources.Memory, 2000, 3000},
	} {
		require.Equal(t, c.want, initialLimit(r, c.limit, c.k, c.request), c.limit.String())
	}
	unknown := &Recording{Limits: resources.NewList(300, 0)}
	require.Equal(t, resources.Amount(200), initialLimit(unknown, Limit{Policy: KeepRatio}, resources.CPU, 200), "equal without a recorded request")
	require.Equal(t, resources.Amount(300), InitialRequests(unknown, DefaultSetup()).Value(resources.CPU), "the limit is the request then")
}

type flapping struct{ recorder }

func (*flapping) Advise(now time.Time, _ resources.List) resources.Bounds {
	size := resources.NewList(resources.Amount(100+200*(now.Minute()%2)), 0)
	return resources.Bounds{Lower: size, Target: size, Upper: size}
}

func TestRun_PlannerKeepsState(t *testing.T) {
	changes := func(window time.Duration) int {
		r, f := &Recording{}, &flapping{}
		for i := range int64(60) {
			r.At = append(r.At, i*60e9)
			r.Use[resources.CPU], r.Use[resources.Memory] = append(r.Use[resources.CPU], 50), append(r.Use[resources.Memory], 1)
		}
		s := DefaultSetup(resources.CPU)
		s.Initial, s.Update.Planner.StabilizationWindow = resources.NewList(100, 1), window
		Run(r, s, f, eventRecorder{&f.recorder})
		return len(f.changes)
	}
	require.Equal(t, 60, changes(0))
	require.Equal(t, 5, changes(10*time.Minute), "what was given is taken back after 10 minutes, and then after 20")
}
