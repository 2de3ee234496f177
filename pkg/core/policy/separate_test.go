package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

// follows recommends one amount of memory to request and another one to protect with the limit.
func follows(request, protected resources.Amount) resources.Bounds {
	return resources.Bounds{
		Lower:  some(0, request.Scale(0.95)),
		Target: some(0, request),
		Upper:  some(0, protected),
	}
}

func separately(rule Rule) Rules {
	r := rules(rule)
	r.SeparateMemoryLimit = true
	return r
}

func ranged(r Range) Ranges { return Ranges{Container: r} }

func TestFit_SeparateMemoryLimit(t *testing.T) {
	least, most := bounded(some(0, 90*mi), resources.List{}), bounded(resources.List{}, some(0, 100*mi))
	for _, tc := range []struct {
		name           string
		container      Container
		recommended    resources.Bounds
		rule           Rule
		ranges         Ranges
		request, limit resources.Amount // MiB; 0 = not written
		span           LimitSpan        // MiB
		lower, upper   resources.Amount // MiB, of the request
	}{
		{
			name:      "limit protects the higher amount",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(60*mi, 120*mi),
			rule:    Default(),
			request: 60, limit: 180, span: LimitSpan{171, 234}, lower: 57, upper: 120,
		},
		{
			name:      "steady request may be above its target",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(100*mi, 100*mi),
			rule:    Default(),
			request: 100, limit: 150, span: LimitSpan{142, 195}, lower: 95, upper: 130,
		},
		{
			name:      "limit covers at least the request",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(80*mi, 60*mi),
			rule:    Default(),
			request: 80, limit: 120, span: LimitSpan{114, 156}, lower: 76, upper: 104,
		},
		{
			name:      "equal request and limit stay equal",
			container: pair("c", 0, 0, 100*mi, 100*mi), recommended: follows(60*mi, 120*mi),
			rule:    Default(),
			request: 120, limit: 120, lower: 114, upper: 156,
		},
		{
			name:      "limit without request",
			container: pair("c", 0, 0, 0, 100*mi), recommended: follows(60*mi, 120*mi),
			rule:    Default(),
			request: 120, limit: 120, lower: 114, upper: 156,
		},
		{
			name:      "no limit",
			container: pair("c", 0, 0, 100*mi, 0), recommended: follows(60*mi, 120*mi),
			rule:    Default(),
			request: 60, lower: 57, upper: 120,
		},
		{
			name:      "fixed limit",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(60*mi, 120*mi),
			rule:    requestsOnly(),
			request: 60, lower: 57, upper: 120,
		},
		{
			name:      "fixed limit bounds the request",
			container: pair("c", 0, 0, 100*mi, 50*mi), recommended: follows(60*mi, 120*mi),
			rule:    requestsOnly(),
			request: 50, lower: 50, upper: 50,
		},
		{
			name:      "minAllowed applies to the request",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(60*mi, 120*mi),
			rule:    least,
			request: 90, limit: 180, span: LimitSpan{171, 234}, lower: 90, upper: 120,
		},
		{
			name:      "maxAllowed applies to the protected amount",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(60*mi, 120*mi),
			rule:    most,
			request: 60, limit: 150, span: LimitSpan{142, 195}, lower: 57, upper: 100,
		},
		{
			name:      "LimitRange bounds the limit",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(60*mi, 120*mi),
			rule: Default(), ranges: ranged(Range{Max: some(0, 165*mi)}),
			request: 60, limit: 165, span: LimitSpan{156, 214}, lower: 57, upper: 110,
		},
		{
			name:      "LimitRange bounds the request from below",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(60*mi, 120*mi),
			rule: Default(), ranges: ranged(Range{Min: some(0, 70*mi)}),
			request: 70, limit: 180, span: LimitSpan{171, 234}, lower: 70, upper: 120,
		},
		{
			name:      "LimitRange bounds the ratio",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(60*mi, 120*mi),
			rule: Default(), ranges: ranged(Range{MaxRatio: some(0, 2000)}),
			request: 90, limit: 180, span: LimitSpan{171, 234}, lower: 57, upper: 120,
		},
		{
			name:      "default limit of the namespace",
			container: pair("c", 0, 0, 100*mi, 0), recommended: follows(60*mi, 120*mi),
			rule: Default(), ranges: ranged(Range{Default: some(0, 200*mi)}),
			request: 60, limit: 240, span: LimitSpan{228, 312}, lower: 57, upper: 120,
		},
		{
			name:      "minimum of the pod above the request",
			container: pair("c", 0, 0, 100*mi, 150*mi), recommended: follows(60*mi, 120*mi),
			rule: Default(), ranges: Ranges{Pod: Range{Min: some(0, 110*mi)}},
			request: 120, limit: 180, span: LimitSpan{171, 234}, lower: 110, upper: 120,
		},
		{
			name:        "declared proportion determines the limit",
			container:   Container{Name: "c", Requests: some(0, 60*mi), Limits: some(0, 180*mi), Declared: Proportion{100 * mi, 150 * mi}},
			recommended: follows(70*mi, 100*mi),
			rule:        Default(),
			request:     70, limit: 150, span: LimitSpan{142, 195}, lower: 66, upper: 100,
		},
		{
			name:        "declared proportion does not enlarge the pod",
			container:   Container{Name: "c", Requests: some(0, 60*mi), Limits: some(0, 90*mi), Declared: Proportion{1, 1 << 40}},
			recommended: follows(70*mi, 100*mi),
			rule:        Default(),
			request:     70, limit: 150, span: LimitSpan{142, 195}, lower: 66, upper: 100,
		},
		{
			name:        "fixed limit ignores the declared proportion",
			container:   Container{Name: "c", Requests: some(0, 60*mi), Limits: some(0, 180*mi), Declared: Proportion{100 * mi, 150 * mi}},
			recommended: follows(170*mi, 175*mi),
			rule:        requestsOnly(),
			request:     170, lower: 161, upper: 180,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod, recommendation := Pod{Containers: []Container{tc.container}}, map[string]resources.Bounds{"c": tc.recommended}
			got := Fit(pod, recommendation, separately(tc.rule), tc.ranges).Containers[0]
			require.Equal(t, tc.request, got.Requests.Value(resources.Memory)/mi)
			require.Equal(t, tc.limit, got.Limits.Value(resources.Memory)/mi)
			require.Equal(t, tc.span, LimitSpan{got.MemoryLimit.Min / mi, got.MemoryLimit.Max / mi})
			require.Equal(t, got.Requests, got.Bounds.Target)
			require.Equal(t, tc.lower, got.Bounds.Lower.Value(resources.Memory)/mi, "lower")
			require.Equal(t, tc.upper, got.Bounds.Upper.Value(resources.Memory)/mi, "upper")
		})
	}
}

func TestFit_DeclaredProportionNeedsRecommendation(t *testing.T) {
	c := Container{Name: "c", Requests: some(100, 60*mi), Limits: some(200, 180*mi), Declared: Proportion{100 * mi, 150 * mi}}
	p, off := Pod{Containers: []Container{c}}, Default()
	off.Off = true
	for _, tc := range []struct {
		name string
		fit  ContainerTarget
	}{
		{name: "mode Off",
			fit: Fit(p, map[string]resources.Bounds{"c": follows(70*mi, 100*mi)}, separately(off), Ranges{}).Containers[0]},
		{name: "no recommendation for memory",
			fit: Fit(p, map[string]resources.Bounds{"c": target(50, 0)}, separately(Default()), Ranges{}).Containers[0]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.False(t, tc.fit.Requests.Has(resources.Memory))
			require.False(t, tc.fit.Limits.Has(resources.Memory))
		})
	}
}

func TestFit_DeclaredProportionOutlivesSeparateLimit(t *testing.T) {
	c := Container{Name: "c", Requests: some(0, 60*mi), Limits: some(0, 180*mi), Declared: Proportion{100 * mi, 150 * mi}}
	got := fitOne(c, target(0, 80*mi), Default(), Ranges{})
	require.Equal(t, some(0, 80*mi), got.Requests)
	require.Equal(t, some(0, 120*mi), got.Limits)
	require.Zero(t, got.MemoryLimit)
	require.Zero(t, got.Declared)
}

// Fitting the result again gives the same result, as long as the declared proportion is recorded.
func TestFit_SeparateMemoryLimitIsNeverLower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func(name string) resources.Amount {
			return resources.Amount(rapid.Int64Range(1<<20, 1<<33).Draw(t, name))
		}
		// Proportions of a few bytes do not survive rounding.
		pod, recommendation, whole := Pod{}, map[string]resources.Bounds{}, map[string]resources.Bounds{}
		ranges := Ranges{}
		if rapid.Bool().Draw(t, "ranged") {
			ranges.Container = Range{Min: some(0, amount("min")/8), Max: some(0, amount("max")*2)}
		}
		for _, name := range []string{"a", "b"} {
			request := amount("request")
			pod.Containers = append(pod.Containers, pair(name, 0, 0, request, request.Add(amount("extra")*resources.Amount(rapid.IntRange(0, 1).Draw(t, "limit")))))
			b := follows(amount("target"), amount("protected"))
			recommendation[name] = b
			whole[name] = target(0, max(b.Target.Value(resources.Memory), b.Upper.Value(resources.Memory)))
		}
		got := Fit(pod, recommendation, separately(Default()), ranges)
		usual := Fit(pod, whole, rules(Default()), ranges)
		for i, f := range got.Containers {
			require.Equal(t, usual.Containers[i].Limits, f.Limits)
			require.LessOrEqual(t, f.Requests.Value(resources.Memory), usual.Containers[i].Requests.Value(resources.Memory))
			was := pod.Containers[i]
			equal := was.Requests == was.Limits
			require.Equal(t, equal, f.MemoryLimit == LimitSpan{}, "an equal pair does not follow")
			if equal {
				require.Equal(t, f.Requests, f.Limits)
			}
		}
		changed := Pod{}
		for _, f := range got.Containers {
			changed.Containers = append(changed.Containers, Container{Name: f.Name, Requests: f.Requests, Limits: f.Limits, Declared: f.Declared})
		}
		require.Equal(t, got, Fit(changed, recommendation, separately(Default()), ranges))
	})
}

func TestFit_SeparateMemoryLimitCountsOtherContainers(t *testing.T) {
	pod := Pod{Containers: []Container{pair("c", 0, 0, 100*mi, 150*mi), pair("other", 0, 0, 30*mi, 40*mi)}}
	got := Fit(pod, map[string]resources.Bounds{"c": follows(60*mi, 120*mi)}, separately(Default()), Ranges{Pod: Range{Min: some(0, 90*mi), Max: some(0, 200*mi)}})
	require.Equal(t, some(0, 60*mi), got.Containers[0].Requests, "60 + 30 are enough")
	require.InDelta(t, float64(160*mi), float64(got.Containers[0].Limits.Value(resources.Memory)), 1, "and 200 - 40 are left for the limit")
	require.True(t, got.Containers[1].Requests.Empty())
}

func TestProportion_Looser(t *testing.T) {
	for _, tc := range []struct {
		name       string
		one, other Proportion
		want       bool
	}{
		{name: "higher limit", one: Proportion{100, 300}, other: Proportion{100, 200}, want: true},
		{name: "lower limit", one: Proportion{100, 200}, other: Proportion{100, 300}},
		{name: "higher ratio of smaller amounts", one: Proportion{50, 150}, other: Proportion{1000, 2000}, want: true},
		{name: "lower ratio of larger amounts", one: Proportion{1000, 2000}, other: Proportion{50, 150}},
		{name: "equal ratios", one: Proportion{100, 200}, other: Proportion{300, 600}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.one.Looser(tc.other))
		})
	}
}

func TestFit_SeparateMemoryLimitMeetsPodRange(t *testing.T) {
	pod := Pod{Containers: []Container{pair("c", 0, 0, 100*mi, 150*mi)}}
	for least, want := range map[resources.Amount]resources.Amount{60 * mi: 60 * mi, 60*mi + 1: 120 * mi} {
		got := Fit(pod, map[string]resources.Bounds{"c": follows(60*mi, 120*mi)}, separately(Default()), Ranges{Pod: Range{Min: some(0, least)}}).Containers[0]
		require.Equal(t, want, got.Requests.Value(resources.Memory), "of a pod range that asks for %d", least)
	}
	for most, want := range map[resources.Amount]resources.Amount{180 * mi: 180 * mi, 180*mi - 1: 180*mi - 1} {
		got := Fit(pod, map[string]resources.Bounds{"c": follows(60*mi, 120*mi)}, separately(Default()), Ranges{Pod: Range{Max: some(0, most)}}).Containers[0]
		require.Equal(t, want, got.Limits.Value(resources.Memory), "of a pod range that allows %d", most)
		require.Equal(t, 60*mi, got.Requests.Value(resources.Memory))
	}
}
