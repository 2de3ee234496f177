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
	for name, c := range map[string]struct {
		container      Container
		recommended    resources.Bounds
		rule           Rule
		ranges         Ranges
		request, limit resources.Amount // MiB; 0 = not written
		span           LimitSpan        // MiB
		lower, upper   resources.Amount // MiB, of the request
	}{
		"the limit is what all that is protected would have": {pair("c", 0, 0, 100*mi, 150*mi), follows(60*mi, 120*mi), Default(), Ranges{}, 60, 180, LimitSpan{171, 234}, 57, 120},
		"a steady one may lie above its target":              {pair("c", 0, 0, 100*mi, 150*mi), follows(100*mi, 100*mi), Default(), Ranges{}, 100, 150, LimitSpan{142, 195}, 95, 130},
		"no less than the request would have":                {pair("c", 0, 0, 100*mi, 150*mi), follows(80*mi, 60*mi), Default(), Ranges{}, 80, 120, LimitSpan{114, 156}, 76, 104},
		"equal stays equal":                                  {pair("c", 0, 0, 100*mi, 100*mi), follows(60*mi, 120*mi), Default(), Ranges{}, 120, 120, LimitSpan{}, 114, 156},
		"a limit without request":                            {pair("c", 0, 0, 0, 100*mi), follows(60*mi, 120*mi), Default(), Ranges{}, 120, 120, LimitSpan{}, 114, 156},
		"without a limit the request goes alone":             {pair("c", 0, 0, 100*mi, 0), follows(60*mi, 120*mi), Default(), Ranges{}, 60, 0, LimitSpan{}, 57, 120},
		"a limit that stands":                                {pair("c", 0, 0, 100*mi, 150*mi), follows(60*mi, 120*mi), requestsOnly(), Ranges{}, 60, 0, LimitSpan{}, 57, 120},
		"a limit that stands bounds the request":             {pair("c", 0, 0, 100*mi, 50*mi), follows(60*mi, 120*mi), requestsOnly(), Ranges{}, 50, 0, LimitSpan{}, 50, 50},
		"minAllowed holds for the request":                   {pair("c", 0, 0, 100*mi, 150*mi), follows(60*mi, 120*mi), least, Ranges{}, 90, 180, LimitSpan{171, 234}, 90, 120},
		"maxAllowed holds for what is protected":             {pair("c", 0, 0, 100*mi, 150*mi), follows(60*mi, 120*mi), most, Ranges{}, 60, 150, LimitSpan{142, 195}, 57, 100},
		"a LimitRange bounds the limit":                      {pair("c", 0, 0, 100*mi, 150*mi), follows(60*mi, 120*mi), Default(), ranged(Range{Max: some(0, 165*mi)}), 60, 165, LimitSpan{156, 214}, 57, 110},
		"and the request from below":                         {pair("c", 0, 0, 100*mi, 150*mi), follows(60*mi, 120*mi), Default(), ranged(Range{Min: some(0, 70*mi)}), 70, 180, LimitSpan{171, 234}, 70, 120},
		"and their ratio":                                    {pair("c", 0, 0, 100*mi, 150*mi), follows(60*mi, 120*mi), Default(), ranged(Range{MaxRatio: some(0, 2000)}), 90, 180, LimitSpan{171, 234}, 57, 120},
		"the default limit of the namespace":                 {pair("c", 0, 0, 100*mi, 0), follows(60*mi, 120*mi), Default(), ranged(Range{Default: some(0, 200*mi)}), 60, 240, LimitSpan{228, 312}, 57, 120},
		"a pod range that asks for more": {pair("c", 0, 0, 100*mi, 150*mi), follows(60*mi, 120*mi), Default(),
			Ranges{Pod: Range{Min: some(0, 110*mi)}}, 120, 180, LimitSpan{171, 234}, 110, 120},
		"what it was declared with counts": {Container{Name: "c", Requests: some(0, 60*mi), Limits: some(0, 180*mi), Declared: Proportion{100 * mi, 150 * mi}},
			follows(70*mi, 100*mi), Default(), Ranges{}, 70, 150, LimitSpan{142, 195}, 66, 100},
		"unless it would make the pod larger": {Container{Name: "c", Requests: some(0, 60*mi), Limits: some(0, 90*mi), Declared: Proportion{1, 1 << 40}},
			follows(70*mi, 100*mi), Default(), Ranges{}, 70, 150, LimitSpan{142, 195}, 66, 100},
		"but not with a limit that stands": {Container{Name: "c", Requests: some(0, 60*mi), Limits: some(0, 180*mi), Declared: Proportion{100 * mi, 150 * mi}},
			follows(170*mi, 175*mi), requestsOnly(), Ranges{}, 170, 0, LimitSpan{}, 161, 180},
	} {
		got := Fit(Pod{Containers: []Container{c.container}}, map[string]resources.Bounds{"c": c.recommended}, separately(c.rule), c.ranges).Containers[0]
		require.Equal(t, c.request, got.Requests.Value(resources.Memory)/mi, name)
		require.Equal(t, c.limit, got.Limits.Value(resources.Memory)/mi, name)
		require.Equal(t, c.span, LimitSpan{got.MemoryLimit.Min / mi, got.MemoryLimit.Max / mi}, name)
		require.Equal(t, got.Requests, got.Bounds.Target, name)
		require.Equal(t, c.lower, got.Bounds.Lower.Value(resources.Memory)/mi, "%s: lower", name)
		require.Equal(t, c.upper, got.Bounds.Upper.Value(resources.Memory)/mi, "%s: upper", name)
	}
}

func TestFit_DeclaredProportionNeedsRecommendation(t *testing.T) {
	c := Container{Name: "c", Requests: some(100, 60*mi), Limits: some(200, 180*mi), Declared: Proportion{100 * mi, 150 * mi}}
	off := Default()
	off.Off = true
	for name, f := range map[string]ContainerTarget{
		"off":       Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{"c": follows(70*mi, 100*mi)}, separately(off), Ranges{}).Containers[0],
		"no memory": Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{"c": target(50, 0)}, separately(Default()), Ranges{}).Containers[0],
	} {
		require.False(t, f.Requests.Has(resources.Memory), name)
		require.False(t, f.Limits.Has(resources.Memory), name)
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
	for _, c := range []struct {
		one, other Proportion
		want       bool
	}{
		{Proportion{100, 300}, Proportion{100, 200}, true},
		{Proportion{100, 200}, Proportion{100, 300}, false},
		{Proportion{50, 150}, Proportion{1000, 2000}, true},
		{Proportion{1000, 2000}, Proportion{50, 150}, false},
		{Proportion{100, 200}, Proportion{300, 600}, false}, // equal
	} {
		require.Equal(t, c.want, c.one.Looser(c.other), "%v than %v", c.one, c.other)
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
