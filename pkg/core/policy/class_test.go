package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestClassOf(t *testing.T) {
	has := func(request, limit resources.Amount) Container {
		return Container{Requests: resources.NewList(request, request), Limits: resources.NewList(limit, limit)}
	}
	for _, tc := range []struct {
		name       string
		containers []Container
		want       Class
	}{
		{name: "nothing", containers: []Container{{}, {}}, want: BestEffort},
		{name: "zeros", containers: []Container{has(0, 0)}, want: BestEffort},
		{name: "equal", containers: []Container{has(1, 1), {Limits: resources.NewList(2, 2)}}, want: Guaranteed},
		{name: "equal beside nothing", containers: []Container{has(1, 1), {}}, want: Burstable},
		{name: "limit above request", containers: []Container{has(1, 2)}, want: Burstable},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, ClassOf(tc.containers)) })
	}
}

// The API server refuses a resize that changes the QoS class, and the pod could not shrink in place
// later.
func TestFit_KeepsBurstable(t *testing.T) {
	const mebibyte = 1 << 20
	list := func(cpu, memory resources.Amount) resources.List { return resources.NewList(cpu, memory*mebibyte) }
	container := func(name string, requests, limits resources.List) Container {
		return Container{Name: name, Requests: requests, Limits: limits}
	}
	for _, tc := range []struct {
		name       string
		containers []Container
		targets    []resources.List
		rule       Rule
		ranges     Ranges
		requests   []resources.List
		limits     []resources.List
		class      Class // zero: Burstable
	}{
		{name: "both limits reached", containers: []Container{container("a", list(100, 100), list(500, 512))}, targets: []resources.List{list(900, 900)},
			rule: Rule{RequestsOnly: true}, requests: []resources.List{list(499, 512)}},
		{name: "one limit reached", containers: []Container{container("a", list(100, 100), list(500, 512))}, targets: []resources.List{list(300, 900)},
			rule: Rule{RequestsOnly: true}, requests: []resources.List{list(300, 512)}},
		{name: "the larger of two containers", rule: Rule{RequestsOnly: true},
			containers: []Container{container("a", list(100, 100), list(500, 512)), container("b", list(100, 100), list(800, 512))},
			targets:    []resources.List{list(900, 900), list(900, 900)}, requests: []resources.List{list(500, 512), list(799, 512)}},
		{name: "CPU at its minimum", containers: []Container{container("a", list(100, 100), list(500, 512))}, targets: []resources.List{list(900, 900)},
			rule: Rule{RequestsOnly: true, Min: resources.List{}.With(resources.CPU, 500)}, requests: []resources.List{list(500, 511)}},
		{name: "CPU of a LimitRange", containers: []Container{container("a", list(500, 100), list(500, 512))}, targets: []resources.List{list(900, 900)},
			rule: Rule{RequestsOnly: true}, ranges: Ranges{Container: Range{Min: resources.List{}.With(resources.CPU, 500)}},
			requests: []resources.List{list(500, 511)}},
		{name: "no room anywhere", containers: []Container{container("a", list(100, 100), list(500, 512))}, targets: []resources.List{list(900, 900)},
			rule: Rule{RequestsOnly: true, Min: list(500, 512)}, requests: []resources.List{list(500, 512)}, class: Guaranteed},
		{name: "a limit that follows and is rounded down", containers: []Container{container("a", resources.NewList(500, 1000), resources.NewList(501, 1001))},
			targets:  []resources.List{resources.NewList(400, 500)},
			requests: []resources.List{resources.NewList(400, 500)}, limits: []resources.List{resources.NewList(401, 500)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.rule.Controlled = Default().Controlled
			pod := Pod{Containers: tc.containers, StaysBurstable: true}
			recommendation := map[string]resources.Bounds{}
			for i, c := range tc.containers {
				recommendation[c.Name] = resources.Bounds{Lower: tc.targets[i], Target: tc.targets[i], Upper: tc.targets[i]}
			}
			rules := Rules{Entries: []Entry{{Container: Wildcard, Rule: tc.rule}}}
			r := Fit(pod, recommendation, rules, tc.ranges)
			after := Pod{StaysBurstable: true}
			for i, f := range r.Containers {
				require.Equal(t, tc.requests[i], f.Requests)
				if tc.limits != nil {
					require.Equal(t, tc.limits[i], f.Limits)
				}
				after.Containers = append(after.Containers, f.appliedTo(pod.Containers[i]))
			}
			require.Equal(t, max(tc.class, Burstable), ClassOf(after.Containers))
			require.True(t, sameAmounts(r, Fit(after, recommendation, rules, tc.ranges)), "fitting the result again changes nothing")
		})
	}
}

func TestFit_KeepsClassWhereLimitsFollowRequests(t *testing.T) {
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		list := func(most int) resources.List {
			return resources.NewList(resources.Amount(1+random.IntN(most)), resources.Amount(1+random.IntN(most)))
		}
		var pod Pod
		recommendation, guaranteed := map[string]resources.Bounds{}, random.IntN(2) == 0
		for i := range 1 + random.IntN(3) {
			c := Container{Name: string(rune('a' + i)), Requests: list(20)}
			if c.Limits = c.Requests; !guaranteed {
				for k := range resources.Kind(resources.Kinds) {
					c.Limits = c.Limits.With(k, c.Requests.Value(k)+resources.Amount(random.IntN(3)))
				}
			}
			pod.Containers = append(pod.Containers, c)
			target := list(20)
			if random.IntN(4) > 0 {
				recommendation[c.Name] = resources.Bounds{Lower: target, Target: target, Upper: target}
			}
		}
		before := ClassOf(pod.Containers)
		pod.StaysBurstable = before == Burstable
		var after []Container
		for i, f := range Fit(pod, recommendation, Rules{}, Ranges{}).Containers {
			after = append(after, f.appliedTo(pod.Containers[i]))
		}
		require.Equal(t, before, ClassOf(after), "seed %d: %+v, then %+v", seed, pod, after)
	}
}
