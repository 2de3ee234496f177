package policy

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

const mi = resources.Amount(1 << 20)

// pair is a container. An amount of 0 means absent.
func pair(name string, cpu, cpuLimit, memory, memoryLimit resources.Amount) Container {
	return Container{Name: name, Requests: some(cpu, memory), Limits: some(cpuLimit, memoryLimit)}
}

func some(cpu, memory resources.Amount) resources.List {
	var r resources.List
	if cpu != 0 {
		r = r.With(resources.CPU, cpu)
	}
	if memory != 0 {
		r = r.With(resources.Memory, memory)
	}
	return r
}

func target(cpu, memory resources.Amount) resources.Bounds {
	return resources.Bounds{Target: some(cpu, memory)}
}

// same is a recommendation whose bounds equal the target.
func same(cpu, memory resources.Amount) resources.Bounds {
	r := some(cpu, memory)
	return resources.Bounds{Lower: r, Target: r, Upper: r}
}

func rules(rule Rule) Rules { return Rules{Entries: []Entry{{Container: Wildcard, Rule: rule}}} }

func bounded(least, most resources.List) Rule {
	r := Default()
	r.Min, r.Max = least, most
	return r
}

func requestsOnly() Rule {
	r := Default()
	r.RequestsOnly = true
	return r
}

func fitOne(c Container, b resources.Bounds, rule Rule, ranges Ranges) ContainerTarget {
	return Fit(Pod{Containers: []Container{c}}, map[string]resources.Bounds{c.Name: b}, rules(rule), ranges).Containers[0]
}

func TestFit_LimitsKeepProportionToRequests(t *testing.T) {
	for _, tc := range []struct {
		name      string
		container Container
		target    resources.Bounds
		requests  resources.List
		limits    resources.List
	}{
		{
			name:      "rounded down",
			container: pair("c", 300, 1000, 300*mi, 1000*mi), target: target(100, 100000001),
			requests: some(100, 100000001), limits: some(333, 333333336),
		},
		{
			name:      "equal request and limit stay equal",
			container: pair("c", 100, 100, 100*mi, 100*mi), target: target(255, 262144000),
			requests: some(255, 262144000), limits: some(255, 262144000),
		},
		{
			name:      "limit without request",
			container: pair("c", 0, 500, 0, 500*mi), target: target(250, 200*mi),
			requests: some(250, 200*mi), limits: some(250, 200*mi),
		},
		{name: "no limit", container: pair("c", 100, 0, 100*mi, 0), target: target(250, 200*mi), requests: some(250, 200*mi)},
		{name: "no request and no limit", container: pair("c", 0, 0, 0, 0), target: target(250, 200*mi), requests: some(250, 200*mi)},
		{
			name:      "only CPU recommended",
			container: pair("c", 100, 200, 100*mi, 200*mi), target: target(150, 0),
			requests: some(150, 0), limits: some(300, 0),
		},
		{
			name:      "zero CPU recommended",
			container: pair("c", 100, 200, 100*mi, 200*mi), target: resources.Bounds{Target: resources.NewList(0, 10*mi)},
			requests: resources.NewList(0, 10*mi), limits: some(0, 20*mi),
		},
		{
			name:      "no overflow of intermediate results",
			container: pair("c", 1, 2, 1<<40, 1<<41), target: target(5, 1<<60),
			requests: some(5, 1<<60), limits: some(10, 1<<61),
		},
		{
			name:      "limit saturates",
			container: pair("c", 1, 2, 1, 1<<40), target: target(5, 1<<60),
			requests: some(5, 1<<60), limits: some(10, math.MaxInt64),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := fitOne(tc.container, tc.target, Default(), Ranges{})
			require.Equal(t, tc.requests, got.Requests)
			require.Equal(t, tc.limits, got.Limits)
		})
	}
}

func notes(f ContainerTarget) (all []string) {
	for _, n := range f.Notes {
		all = append(all, n.String())
	}
	return all
}

func TestFit_NotesMatchReferenceVPA(t *testing.T) {
	c := pair("c", 100, 200, 100*mi, 0)
	require.Equal(t, []string{"cpu capped to minAllowed", "memory capped to maxAllowed", "memory: limit NOT set since originalLimit is nil or 0"},
		notes(fitOne(c, target(50, 200*mi), bounded(some(70, 0), some(0, 150*mi)), Ranges{})))
	require.Equal(t, []string{"cpu: limit NOT set since recommendedRequest is nil or 0"},
		notes(fitOne(pair("c", 100, 200, 100*mi, 200*mi), target(0, 200*mi), Default(), Ranges{})))
	require.Empty(t, notes(fitOne(pair("c", 100, 0, 100*mi, 0), target(50, 200*mi), Default(), Ranges{})), "no limit at all needs no note")
	require.Equal(t, []string{"memory: failed to keep limit to request ratio; capping limit to int64"},
		notes(fitOne(pair("c", 1, 2, 1, 1<<40), target(5, 1<<60), Default(), Ranges{})))
}

func TestFit_ContainerRangeBoundsRequestThroughLimit(t *testing.T) {
	got := fitOne(pair("c", 100, 300, 100*mi, 150*mi), target(250, 200*mi), Default(), Ranges{Container: Range{Max: some(500, 225*mi)}})
	require.Equal(t, some(166, 150*mi), got.Requests)
	require.Equal(t, some(498, 225*mi), got.Limits)
	require.Equal(t, []string{"cpu capped to fit Max in container LimitRange", "memory capped to fit Max in container LimitRange"}, notes(got))

	got = fitOne(pair("c", 100, 150, 100*mi, 200*mi), target(50, 60*mi), Default(), Ranges{Container: Range{Min: some(100, 100*mi)}})
	require.Equal(t, some(100, 100*mi), got.Requests)
	require.Equal(t, some(150, 200*mi), got.Limits)
	require.Equal(t, []string{"cpu capped to fit Min in container LimitRange", "memory capped to fit Min in container LimitRange"}, notes(got))
}

func TestFit_NamespaceDefaultActsAsLimit(t *testing.T) {
	got := fitOne(pair("c", 100, 0, 100*mi, 0), target(250, 200*mi), Default(), Ranges{Container: Range{Default: some(300, 200*mi)}})
	require.Equal(t, some(750, 400*mi), got.Limits)
}

func TestFit_ContainerWithoutLimitIgnoresMaximum(t *testing.T) {
	got := fitOne(pair("c", 100, 0, 0, 0), target(900, 0), Default(), Ranges{Container: Range{Max: some(500, 0)}})
	require.Equal(t, some(900, 0), got.Requests, "the API server asks for a limit, whatever the request is")
	require.True(t, slices.ContainsFunc(got.Notes, Note.Refused))
}

func TestFit_PolicyOverridesLimitRangeOfRefusedPod(t *testing.T) {
	got := fitOne(pair("c", 600, 600, 0, 0), target(250, 0), bounded(some(700, 0), some(0, 0)), Ranges{Container: Range{Max: some(500, 0)}})
	require.Equal(t, some(700, 0), got.Requests)
	require.Equal(t, some(700, 0), got.Limits)
	require.Contains(t, notes(got), "cpu does not fit the container LimitRange")
}

func TestFit_MaximumOverridesMinimum(t *testing.T) {
	got := fitOne(pair("c", 100, 0, 0, 0), target(250, 0), bounded(some(700, 0), some(300, 0)), Ranges{})
	require.Equal(t, some(300, 0), got.Requests)
	require.Equal(t, []string{"cpu capped to maxAllowed"}, notes(got))
}

func TestFit_RequestsOnlyStaysBelowLimits(t *testing.T) {
	got := fitOne(pair("c", 100, 300, 100*mi, 150*mi), target(250, 200*mi), requestsOnly(), Ranges{})
	require.Equal(t, some(250, 150*mi), got.Requests)
	require.True(t, got.Limits.Empty())
	require.Equal(t, []string{"memory capped to container limit"}, notes(got))
}

func TestFit_RequestsOnlyIgnoresRangeOnFixedLimits(t *testing.T) {
	c := pair("c", 100, 300, 0, 0)
	got := fitOne(c, target(250, 0), requestsOnly(), Ranges{Container: Range{Max: some(500, 0)}, Pod: Range{Max: some(500, 0)}})
	require.Equal(t, some(250, 0), got.Requests, "the limit of 300m fits and does not move")
}

func threeContainers(cpu, memory resources.Amount) (Pod, func(b resources.Bounds) map[string]resources.Bounds) {
	pod := Pod{Containers: []Container{pair("a", cpu, cpu, memory, memory), pair("b", cpu, cpu, memory, memory), pair("d", cpu, cpu, memory, memory)}}
	return pod, func(b resources.Bounds) map[string]resources.Bounds {
		return map[string]resources.Bounds{"a": b, "b": b, "d": b}
	}
}

func TestFit_PodMaximumScalesProportionally(t *testing.T) {
	pod, all := threeContainers(100, 100*mi)
	got := Fit(pod, all(same(200, 200*mi)), Rules{}, Ranges{Pod: Range{Max: some(500, 500*mi)}})
	for _, f := range got.Containers {
		require.Equal(t, some(166, 174762666), f.Requests)
		require.Equal(t, some(166, 174762666), f.Limits)
		require.Equal(t, f.Requests, f.Bounds.Lower)
		require.Equal(t, f.Requests, f.Bounds.Upper)
	}
}

func TestFit_PodMinimumIsMetToTheByte(t *testing.T) {
	pod, all := threeContainers(50, 50*mi)
	got := Fit(pod, all(same(100, 100*mi)), Rules{}, Ranges{Pod: Range{Min: some(1000, 1e9)}})
	require.Equal(t, some(334, 333333334), got.Containers[0].Requests)
	require.Equal(t, some(334, 333333333), got.Containers[1].Requests)
	require.Equal(t, some(334, 333333333), got.Containers[2].Requests)
}

func TestFit_PodMinimumAppliesWithoutLimits(t *testing.T) {
	got := Fit(Pod{Containers: []Container{pair("c", 200, 0, 0, 0)}}, map[string]resources.Bounds{"c": same(50, 0)}, Rules{}, Ranges{Pod: Range{Min: some(150, 0)}})
	require.Equal(t, some(150, 0), got.Containers[0].Requests, "the API server compares the sum of requests with the minimum")
}

func TestFit_AbsentAmountsDoNotPanic(t *testing.T) {
	ranges := Ranges{Pod: Range{Min: some(1000, 1e9), Max: some(2000, 2e9)}, Container: Range{Min: some(1, 1), Max: some(1, 1), Default: some(1, 1)}}
	pod := Pod{Containers: []Container{pair("bare", 0, 0, 0, 0), pair("full", 1, 2, 3, 4), {}}}
	for _, b := range []resources.Bounds{{}, {Lower: some(1, 1)}, target(1, 0), target(0, 1), {Target: resources.NewList(0, 0)}, {Target: resources.NewList(-5, math.MaxInt64)}} {
		Fit(pod, map[string]resources.Bounds{"full": b, "ghost": b}, Rules{}, ranges)
		Fit(pod, map[string]resources.Bounds{"bare": b, "": b}, Rules{}, ranges)
	}
	require.Empty(t, Fit(Pod{}, nil, Rules{}, ranges).Containers)
}

func TestFit_KeepsContainersWithoutRecommendation(t *testing.T) {
	off := Rules{Entries: []Entry{{Container: "off", Rule: Rule{Off: true}}}}
	pod := Pod{Containers: []Container{pair("a", 900, 900, 0, 0), pair("b", 100, 0, 0, 0), pair("off", 100, 100, 0, 0), pair("free", 200, 0, 0, 0)}}
	recommendation := map[string]resources.Bounds{"a": same(900, 0), "off": same(700, 0), "free": same(300, 0)}
	got := Fit(pod, recommendation, off, Ranges{Pod: Range{Max: some(500, 0)}})
	require.Equal(t, some(400, 0), got.Containers[0].Requests, "what the limit of the container that is off leaves")
	require.Equal(t, some(400, 0), got.Containers[0].Limits)
	require.Equal(t, ContainerTarget{Name: "b"}, got.Containers[1])
	require.Equal(t, ContainerTarget{Name: "off"}, got.Containers[2])
	require.Equal(t, some(300, 0), got.Containers[3].Requests, "without a limit it is not part of the sum that is too high")
}

func TestFit_SlackOfContainersSatisfiesBounds(t *testing.T) {
	pod := Pod{Containers: []Container{pair("a", 100, 100, 0, 0), pair("b", 100, 100, 0, 0)}}
	got := Fit(pod, map[string]resources.Bounds{"a": same(50, 0), "b": same(600, 0)}, Rules{},
		Ranges{Pod: Range{Max: some(500, 0)}, Container: Range{Min: some(200, 0)}})
	require.Equal(t, some(200, 0), got.Containers[0].Requests)
	require.Equal(t, some(300, 0), got.Containers[1].Requests)
	for _, f := range got.Containers {
		require.False(t, slices.ContainsFunc(f.Notes, Note.Refused), "%v", notes(f))
	}
}

func TestFit_BoundsEncloseTargetMovedByPodRange(t *testing.T) {
	pod := Pod{Containers: []Container{pair("a", 100, 100, 0, 0), pair("b", 100, 100, 0, 0)}}
	got := Fit(pod, map[string]resources.Bounds{
		"a": {Lower: some(90, 0), Target: some(100, 0), Upper: some(200, 0)},
		"b": {Lower: some(300, 0), Target: some(900, 0), Upper: some(1000, 0)},
	}, Rules{}, Ranges{Pod: Range{Max: some(500, 0)}})
	require.Equal(t, some(50, 0), got.Containers[0].Requests)
	for _, f := range got.Containers {
		require.LessOrEqual(t, f.Bounds.Lower.Value(resources.CPU), f.Requests.Value(resources.CPU), "a pod with its target must not be out of range")
		require.GreaterOrEqual(t, f.Bounds.Upper.Value(resources.CPU), f.Requests.Value(resources.CPU))
	}
}

func TestFit_NotesUnsatisfiablePodRange(t *testing.T) {
	pod := Pod{Containers: []Container{pair("a", 100, 100, 0, 0), pair("fixed", 0, 600, 0, 0)}}
	got := Fit(pod, map[string]resources.Bounds{"a": same(200, 0)}, Rules{}, Ranges{Pod: Range{Max: some(500, 0)}})
	require.Equal(t, some(200, 0), got.Containers[0].Requests)
	require.Contains(t, notes(got.Containers[0]), "cpu does not fit the pod LimitRange")
	require.Equal(t, ContainerTarget{Name: "fixed"}, got.Containers[1], "a container without request has nothing that could be scaled")
}

// unrecommendedCase is a pod whose container "rest" has no recommendation.
type unrecommendedCase struct {
	name        string
	pod         Pod
	recommended resources.Bounds // for the container "a"
	maxA        resources.List   // maximum of the container "a"
	rule        Rule             // of all containers except "a"
	ranges      Ranges
	a           [2]resources.List // expected requests and limits
	rest        [2]resources.List
}

func TestFit_ScalesContainersWithoutRecommendation(t *testing.T) {
	const moved = "cpu scaled without a recommendation to fit the pod LimitRange"
	two := Pod{Containers: []Container{pair("a", 100, 100, 0, 0), pair("rest", 600, 1200, 50*mi, 50*mi)}}
	off := Rule{Off: true}
	uncontrolled := Rule{Controlled: [resources.Kinds]bool{resources.Memory: true}}
	most, least := Ranges{Pod: Range{Max: some(700, 0)}}, Ranges{Pod: Range{Min: some(2000, 0)}}
	capped := pair("a", 100, 0, 0, 0)
	for _, tc := range []unrecommendedCase{
		{
			name: "scaled proportionally below a maximum",
			pod:  two, recommended: same(200, 0),
			rule: Default(), ranges: most,
			a: [2]resources.List{some(100, 0), some(100, 0)}, rest: [2]resources.List{some(300, 0), some(600, 0)},
		},
		{
			name: "scaled if its mode is off",
			pod:  two, recommended: same(200, 0),
			rule: off, ranges: most,
			a: [2]resources.List{some(100, 0), some(100, 0)}, rest: [2]resources.List{some(300, 0), some(600, 0)},
		},
		{
			name: "scaled if CPU is not controlled",
			pod:  two, recommended: same(200, 0),
			rule: uncontrolled, ranges: most,
			a: [2]resources.List{some(100, 0), some(100, 0)}, rest: [2]resources.List{some(300, 0), some(600, 0)},
		},
		{
			name: "scaled up to a minimum",
			pod:  Pod{Containers: []Container{capped, two.Containers[1]}}, recommended: same(200, 0),
			rule: Default(), ranges: Ranges{Pod: Range{Min: some(1600, 0)}, Container: Range{Min: some(10, 0)}},
			a: [2]resources.List{some(400, 0), some(0, 0)}, rest: [2]resources.List{some(1200, 0), some(2400, 0)},
		},
		{
			name: "not scaled if its limits stay",
			pod:  two, recommended: same(200, 0),
			rule: requestsOnly(), ranges: Ranges{Pod: Range{Min: some(1000, 0)}},
			a: [2]resources.List{some(400, 0), some(400, 0)},
		},
		{
			name: "not scaled if the other container suffices",
			pod:  two, recommended: same(200, 0),
			rule: Default(), ranges: Ranges{Pod: Range{Max: some(1300, 0)}},
			a: [2]resources.List{some(100, 0), some(100, 0)},
		},
		{
			name: "not scaled without a CPU recommendation",
			pod:  two, recommended: target(0, 10*mi),
			rule: Default(), ranges: most,
			a: [2]resources.List{some(0, 10*mi), some(0, 0)},
		},
		{
			name: "no limit is added",
			pod:  Pod{Containers: []Container{capped, pair("rest", 100, 0, 0, 0)}}, recommended: same(200, 0), maxA: some(200, 0),
			rule: Default(), ranges: Ranges{Pod: Range{Min: some(1000, 0)}},
			a: [2]resources.List{some(200, 0), some(0, 0)}, rest: [2]resources.List{some(800, 0), some(0, 0)},
		},
		{
			name: "not scaled below its minimum",
			pod:  two, recommended: same(200, 0),
			rule: bounded(some(500, 0), some(0, 0)), ranges: most,
			a: [2]resources.List{some(200, 0), some(200, 0)},
		},
		{
			name: "not scaled if it is below its minimum already",
			pod:  two, recommended: same(200, 0),
			rule: bounded(some(900, 0), some(0, 0)), ranges: least,
			a: [2]resources.List{some(1400, 0), some(1400, 0)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			own := bounded(resources.List{}, tc.maxA)
			rules := Rules{Entries: []Entry{{Container: "a", Rule: own}, {Container: Wildcard, Rule: tc.rule}}}
			got := Fit(tc.pod, map[string]resources.Bounds{"a": tc.recommended}, rules, tc.ranges).Containers
			require.Equal(t, tc.a, [2]resources.List{got[0].Requests, got[0].Limits})
			require.Equal(t, tc.rest, [2]resources.List{got[1].Requests, got[1].Limits})
			require.Equal(t, !tc.rest[0].Empty(), slices.Contains(notes(got[1]), moved))
			require.Equal(t, resources.Bounds{}, got[1].Bounds, "nothing was recommended")
		})
	}
}

func TestFit_ScalesContainersWithModeOffLast(t *testing.T) {
	pod := Pod{Containers: []Container{pair("a", 100, 100, 0, 0), pair("rest", 400, 400, 0, 0), pair("off", 400, 400, 0, 0)}}
	rules := Rules{Entries: []Entry{{Container: "off", Rule: Rule{Off: true, Controlled: Default().Controlled}}}}
	fit := func(most resources.Amount) (sizes []resources.List) {
		for _, f := range Fit(pod, map[string]resources.Bounds{"a": same(200, 0)}, rules, Ranges{Pod: Range{Max: some(most, 0)}}).Containers {
			sizes = append(sizes, f.Requests)
		}
		return sizes
	}
	require.Equal(t, []resources.List{some(100, 0), some(200, 0), {}}, fit(700))
	require.Equal(t, []resources.List{some(60, 0), some(120, 0), some(120, 0)}, fit(300))
	rules.Entries[0].Rule = Rule{Controlled: [resources.Kinds]bool{resources.Memory: true}}
	require.Equal(t, []resources.List{some(100, 0), some(200, 0), {}}, fit(700), "CPU that is not controlled is as if it were off")
}

type world struct {
	pod            Pod
	recommendation map[string]resources.Bounds
	rules          Rules
	ranges         Ranges
}

func drawWorld(t *rapid.T) world {
	value := func(label string) resources.Amount {
		return resources.Amount(rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, 2000), rapid.Int64Range(0, 1<<36)).Draw(t, label))
	}
	pairOf := func(label string) resources.List { return some(value(label), value(label)) }
	w := world{recommendation: map[string]resources.Bounds{}}
	for i := range rapid.IntRange(0, 4).Draw(t, "containers") {
		c := Container{Name: string(rune('a' + i)), Requests: pairOf("request"), Limits: pairOf("limit")}
		for k := range resources.Kind(resources.Kinds) {
			if limit, ok := c.Limits.Get(k); ok {
				c.Limits = c.Limits.With(k, max(limit, c.Requests.Value(k)))
			}
		}
		w.pod.Containers = append(w.pod.Containers, c)
		if rapid.IntRange(0, 3).Draw(t, "recommended") > 0 {
			lower, more, most := pairOf("lower"), value("more"), value("most")
			b := resources.Bounds{Lower: lower}
			for k := range resources.Kind(resources.Kinds) {
				if a, ok := lower.Get(k); ok {
					b.Target, b.Upper = b.Target.With(k, a+more), b.Upper.With(k, a+more+most)
				}
			}
			w.recommendation[c.Name] = b
		}
		if rapid.IntRange(0, 3).Draw(t, "ruled") == 0 {
			r := Default()
			r.Off, r.RequestsOnly = rapid.IntRange(0, 5).Draw(t, "off") == 0, rapid.Bool().Draw(t, "only")
			r.Min, r.Max = pairOf("min"), pairOf("max")
			w.rules.Entries = append(w.rules.Entries, Entry{Container: c.Name, Rule: r})
		}
	}
	drawRange := func(label string) (r Range) {
		if rapid.Bool().Draw(t, label) {
			r.Min = pairOf("range min")
		}
		if rapid.Bool().Draw(t, label) {
			r.Max = pairOf("range max")
			for k := range resources.Kind(resources.Kinds) {
				if a, ok := r.Max.Get(k); ok {
					r.Max = r.Max.With(k, max(a, r.Min.Value(k)))
				}
			}
		}
		return r
	}
	w.ranges = Ranges{Container: drawRange("container"), Pod: drawRange("pod")}
	return w
}

func (w world) fit() Result { return Fit(w.pod, w.recommendation, w.rules, w.ranges) }

func (w world) after(r Result) Pod {
	p := newProblem(Pod{Containers: slices.Clone(w.pod.Containers)}, nil, Rules{}, Ranges{})
	p.setCurrent(r)
	var pod Pod
	for _, part := range p.parts {
		pod.Containers = append(pod.Containers, part.container)
	}
	return pod
}

func checkWorld(t *rapid.T) { drawWorld(t).checkInvariants(t) }

func TestFit_Invariants(t *testing.T) { rapid.Check(t, checkWorld) }

func FuzzFit(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkWorld)) }

func TestFit_MeetsSatisfiablePodRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pod Pod
		recommendation := map[string]resources.Bounds{}
		for i := range rapid.IntRange(1, 5).Draw(t, "containers") {
			name := string(rune('a' + i))
			request := resources.Amount(rapid.Int64Range(1, 5000).Draw(t, "request"))
			pod.Containers = append(pod.Containers, pair(name, request, request, request, request))
			recommendation[name] = same(resources.Amount(rapid.Int64Range(1, 50000).Draw(t, "cpu")), resources.Amount(rapid.Int64Range(1, 1<<40).Draw(t, "memory")))
		}
		least := resources.Amount(rapid.Int64Range(0, 100000).Draw(t, "least"))
		most := resources.Amount(rapid.Int64Range(int64(least)+int64(len(pod.Containers)), 200000).Draw(t, "most"))
		ranges := Ranges{Pod: Range{Min: some(least, least), Max: some(most, most)}}
		for _, f := range Fit(pod, recommendation, Rules{}, ranges).Containers {
			require.False(t, slices.ContainsFunc(f.Notes, Note.Refused), "%v", notes(f))
		}
	})
}
