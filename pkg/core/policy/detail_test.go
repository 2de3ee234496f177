package policy

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestNote_TextAndProperties(t *testing.T) {
	for _, tc := range []struct {
		name                              string
		reason                            Reason
		text                              string
		limit, refused, cut, inAnnotation bool
	}{
		{name: "raised to minAllowed", reason: RaisedToMin, text: "cpu capped to minAllowed", inAnnotation: true},
		{name: "cut to maxAllowed", reason: CutToMax, text: "cpu capped to maxAllowed", cut: true, inAnnotation: true},
		{name: "cut to the container limit", reason: CutToLimit, text: "cpu capped to container limit", cut: true, inAnnotation: true},
		{
			name:   "cut to the container maximum",
			reason: CutToRange, text: "cpu capped to fit Max in container LimitRange",
			cut: true, inAnnotation: true,
		},
		{
			name:   "raised to the container minimum",
			reason: RaisedToRange, text: "cpu capped to fit Min in container LimitRange",
			inAnnotation: true,
		},
		{
			name:   "no original limit",
			reason: NoOriginalLimit, text: "cpu: limit NOT set since originalLimit is nil or 0",
			limit: true, inAnnotation: true,
		},
		{
			name:   "no recommended request",
			reason: NoRequest, text: "cpu: limit NOT set since recommendedRequest is nil or 0",
			limit: true, inAnnotation: true,
		},
		{
			name:   "limit overflow",
			reason: LimitOverflow, text: "cpu: failed to keep limit to request ratio; capping limit to int64",
			limit: true, inAnnotation: true,
		},
		{name: "moved to the pod range", reason: MovedToPodRange, text: "cpu scaled to fit the pod LimitRange", cut: true},
		{
			name:   "moved without a recommendation",
			reason: MovedWithOthers, text: "cpu scaled without a recommendation to fit the pod LimitRange",
		},
		{name: "outside the container range", reason: OutsideRange, text: "cpu does not fit the container LimitRange", refused: true},
		{name: "outside the pod range", reason: OutsidePodRange, text: "cpu does not fit the pod LimitRange", refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := Note{resources.CPU, tc.reason}
			require.Equal(t, tc.text, n.String())
			require.Equal(t, tc.limit, n.AboutLimit())
			require.Equal(t, tc.refused, n.Refused())
			require.Equal(t, tc.cut, n.Cut())
			require.Equal(t, tc.inAnnotation, n.Annotated())
		})
	}
}

func TestFit_KeepsTargetWithinRanges(t *testing.T) {
	pod := Pod{Containers: []Container{pair("a", 100, 200, 0, 0), pair("b", 100, 200, 0, 0)}}
	b := resources.Bounds{Lower: some(90, 0), Target: some(150, 0), Upper: some(160, 0)}
	for _, r := range []Ranges{
		{Pod: Range{Min: some(300, 0), Max: some(600, 0)}},
		{Pod: Range{Min: some(10, 0)}},
		{Pod: Range{Max: some(1000, 0)}},
		{Container: Range{Min: some(150, 0), Max: some(300, 0)}},
	} {
		for _, f := range Fit(pod, map[string]resources.Bounds{"a": b, "b": b}, rules(bounded(some(150, 0), some(150, 0))), r).Containers {
			require.Equal(t, some(150, 0), f.Requests)
			require.Equal(t, some(300, 0), f.Limits)
		}
		for _, f := range Fit(pod, map[string]resources.Bounds{"a": same(150, 0), "b": same(150, 0)}, rules(bounded(some(150, 0), some(150, 0))), r).Containers {
			require.Equal(t, []string{"memory: limit NOT set since originalLimit is nil or 0"}, notes(f), "what meets a bound is not cut")
			require.Equal(t, same(150, 0), f.Bounds)
		}
	}
}

func TestFit_NotesOnlyTargetsMovedByPodRange(t *testing.T) {
	const moved = "cpu scaled to fit the pod LimitRange"
	pod := Pod{Containers: []Container{pair("a", 100, 100, 0, 0), pair("unlimited", 600, 0, 0, 0)}} // refused as it is
	got := Fit(pod, map[string]resources.Bounds{
		"a":         {Lower: some(10, 0), Target: some(600, 0), Upper: some(5000, 0)},
		"unlimited": {Lower: some(800, 0), Target: some(700, 0), Upper: some(600, 0)},
	}, Rules{}, Ranges{Pod: Range{Max: some(500, 0)}}).Containers
	require.Contains(t, notes(got[0]), moved)
	require.NotContains(t, notes(got[1]), moved)
	require.Equal(t, resources.Bounds{Lower: some(10, 0), Target: some(500, 0), Upper: some(500, 0)}, got[0].Bounds, "a bound that fits stays")
	require.Equal(t, resources.Bounds{Lower: some(800, 0), Target: some(700, 0), Upper: some(600, 0)}, got[1].Bounds, "and one that was not moved, however odd")
	got = Fit(pod, map[string]resources.Bounds{"a": {Lower: some(600, 0), Target: some(400, 0)}}, Rules{}, Ranges{Pod: Range{Max: some(500, 0)}}).Containers
	require.Equal(t, resources.Bounds{Lower: some(400, 0), Target: some(400, 0)}, got[0].Bounds, "no bound is added")
	require.NotContains(t, notes(got[0]), moved, "only the lower bound was")
}

func TestFit_PodMinimumAppliesToLimits(t *testing.T) {
	pod := Pod{Containers: []Container{pair("unlimited", 1000, 0, 0, 0), pair("b", 100, 200, 0, 0)}}
	got := Fit(pod, map[string]resources.Bounds{"unlimited": same(1000, 0), "b": same(100, 0)}, Rules{}, Ranges{Pod: Range{Min: some(900, 0)}}).Containers
	require.Equal(t, some(1000, 0), got[0].Requests)
	require.Equal(t, some(450, 0), got[1].Requests)
	require.Equal(t, some(900, 0), got[1].Limits, "the API server compares the sum of limits, too")
}

func TestFit_FixedLimitCountsInPodMaximum(t *testing.T) {
	pod := Pod{Containers: []Container{pair("only", 100, 300, 0, 0), pair("b", 100, 100, 0, 0)}}
	r := Rules{Entries: []Entry{{Container: "only", Rule: requestsOnly()}}}
	got := Fit(pod, map[string]resources.Bounds{"only": same(110, 0), "b": same(180, 0)}, r, Ranges{Pod: Range{Max: some(500, 0)}}).Containers
	require.Equal(t, some(180, 0), got[1].Requests, "300m and 180m fit")
}

// A single pass yields 1m with a limit of 1m, which would allow 2m the next time.
func TestFit_RoundedResultIsStable(t *testing.T) {
	got := fitOne(pair("c", 2, 3, 0, 0), target(2, 0), Default(), Ranges{Container: Range{Max: some(2, 0)}})
	require.Equal(t, some(2, 0), got.Requests)
	require.Equal(t, some(2, 0), got.Limits)
}

func TestFit_DoesNotNoteCappedBounds(t *testing.T) {
	b := resources.Bounds{Lower: some(10, 0), Target: some(100, 0), Upper: some(900, 0)}
	got := fitOne(pair("c", 100, 0, 0, 0), b, bounded(some(50, 0), some(500, 0)), Ranges{})
	require.Empty(t, notes(got))
	require.Equal(t, resources.Bounds{Lower: some(50, 0), Target: some(100, 0), Upper: some(500, 0)}, got.Bounds)
}

func TestFit_RespectsMaxLimitRequestRatio(t *testing.T) {
	ratio := Ranges{Container: Range{MaxRatio: some(3000, 0)}}
	c := pair("c", 200, 600, 0, 0)
	require.Equal(t, some(200, 0), fitOne(c, same(100, 0), requestsOnly(), ratio).Requests, "a limit that stays bounds the request from below")
	require.Equal(t, some(100, 0), fitOne(c, same(100, 0), requestsOnly(), Ranges{Container: Range{Max: some(1000, 0)}}).Requests)
	got := fitOne(c, same(100, 0), Default(), ratio)
	require.Equal(t, some(100, 0), got.Requests, "limits that follow keep their ratio")
	require.NotContains(t, notes(got), "cpu does not fit the container LimitRange", "just the ratio that is allowed")
	require.Contains(t, notes(fitOne(pair("c", 200, 601, 0, 0), same(200, 0), Default(), ratio)), "cpu does not fit the container LimitRange")
	require.NotContains(t, notes(fitOne(pair("c", 200, 0, 0, 0), same(100, 0), Default(), ratio)), "cpu does not fit the container LimitRange", "no limit, no ratio")
}

// Limits round before and after they are summed, so proportional shares can exceed the maximum.
func TestFit_RoundedLimitsMeetPodMaximum(t *testing.T) {
	var pod Pod
	recommendation := map[string]resources.Bounds{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		pod.Containers = append(pod.Containers, pair(name, 100, 150, 0, 0))
		recommendation[name] = same(101, 0)
	}
	got := Fit(pod, recommendation, Rules{}, Ranges{Pod: Range{Max: some(748, 0)}})
	var sum resources.Amount
	for i, f := range got.Containers {
		want := resources.Amount(50)
		if i == len(got.Containers)-1 { // the last of equal containers by name
			want = 49
		}
		require.Equal(t, want, f.Requests.Value(resources.CPU), f.Name)
		sum += f.Limits.Value(resources.CPU)
	}
	require.Equal(t, resources.Amount(748), sum)
}

func TestFit_RemainderRespectsMaximum(t *testing.T) {
	pod := Pod{Containers: []Container{pair("a", 0, 0, 200, 0), pair("b", 0, 0, 100, 0)}}
	rules := Rules{Entries: []Entry{{Container: "a", Rule: bounded(some(0, 0), some(0, 266))}}}
	got := Fit(pod, map[string]resources.Bounds{"a": same(0, 200), "b": same(0, 100)}, rules, Ranges{Pod: Range{Min: some(0, 400)}})
	require.Equal(t, some(0, 266), got.Containers[0].Requests)
	require.Equal(t, some(0, 134), got.Containers[1].Requests)
}

// The bounds decide whether a pod is out of range.
func TestFit_BoundsAreStableAtTarget(t *testing.T) {
	b := resources.Bounds{Lower: some(5, 0), Target: some(6, 0), Upper: some(19, 0)}
	ranges := Ranges{Container: Range{Max: some(17, 0)}}
	first := fitOne(pair("c", 8, 10, 0, 0), b, Default(), ranges)
	require.Equal(t, [2]resources.List{some(6, 0), some(7, 0)}, [2]resources.List{first.Requests, first.Limits})
	again := fitOne(Container{Name: "c", Requests: first.Requests, Limits: first.Limits}, b, Default(), ranges)
	require.Equal(t, first.Bounds, again.Bounds)
}

func TestFit_ContainerWithoutRequestAddsNothingToSum(t *testing.T) {
	pod := Pod{Containers: []Container{pair("a", 100, 0, 0, 0), pair("bare", 0, 0, 0, 0)}}
	got := Fit(pod, map[string]resources.Bounds{"a": same(200, 0)}, Rules{}, Ranges{Pod: Range{Min: some(1000, 0)}})
	require.Equal(t, some(1000, 0), got.Containers[0].Requests)
	got = Fit(pod, map[string]resources.Bounds{"a": same(200, 0)}, Rules{}, Ranges{Pod: Range{Max: some(200, 0)}})
	require.Equal(t, some(200, 0), got.Containers[0].Requests)
	require.Empty(t, notes(got.Containers[0]), "it is all that the range allows, and no more")
}

func TestFit_LimitWithoutRequestFitsPodMaximum(t *testing.T) {
	got := fitOne(pair("c", 0, 500, 0, 0), same(250, 0), Default(), Ranges{Pod: Range{Max: some(300, 0)}})
	require.Equal(t, some(250, 0), got.Requests)
	require.Equal(t, some(250, 0), got.Limits)
}

// The reference VPA rounds up as well and can exceed the minimum by a unit per container.
func TestFit_CPURaisedToPodMinimumRoundsUp(t *testing.T) {
	pod := Pod{Containers: []Container{pair("a", 3, 0, 0, 0), pair("b", 4, 0, 0, 0)}}
	got := Fit(pod, map[string]resources.Bounds{"a": same(3, 0), "b": same(4, 0)}, Rules{}, Ranges{Pod: Range{Min: some(12, 0)}})
	require.Equal(t, some(6, 0), got.Containers[0].Requests, "5.14")
	require.Equal(t, some(7, 0), got.Containers[1].Requests, "6.86")
}

func TestApplyBoost_EdgeCases(t *testing.T) {
	boosted := func(b Boost, only bool, c Container, f ContainerTarget) ContainerTarget {
		r := Default()
		r.Boost, r.RequestsOnly = b, only
		got, err := r.ApplyBoost(c, f, 0)
		require.NoError(t, err)
		return got
	}
	one := Boost{Type: BoostFactor, Factor: 1}
	require.Equal(t, some(100, 0), boosted(one, false, pair("c", 100, 0, 0, 0), ContainerTarget{}).Requests, "a factor of one is one")
	require.Equal(t, some(200, 0), boosted(Boost{Type: BoostFactor, Factor: 2}, true, pair("c", 100, 200, 0, 0), ContainerTarget{}).Requests, "just the limit that stays")
	got := boosted(Boost{Type: BoostFactor, Factor: 4}, false, pair("c", 100, 0, 0, 0), ContainerTarget{Limits: some(250, 0)})
	require.Equal(t, some(400, 0), got.Limits, "a limit from the default of the namespace is not below the request")
	require.Empty(t, got.Notes)
	got = boosted(one, false, pair("c", 100, 0, 0, 0), ContainerTarget{Limits: some(250, 0)})
	require.Equal(t, some(250, 0), got.Limits)
	got = boosted(one, false, pair("c", 100, 0, 0, 0), ContainerTarget{})
	require.True(t, got.Limits.Empty(), "no limit comes from nothing")
	got = boosted(Boost{Type: BoostFactor, Factor: 1 << 40}, false, pair("c", 1<<20, 1<<40, 0, 0), ContainerTarget{})
	require.Equal(t, resources.Amount(math.MaxInt64), got.Limits.Value(resources.CPU))
	require.Equal(t, []string{"cpu: failed to keep limit to request ratio; capping limit to int64"}, notes(got))
}
