package compat

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/features"
)

// certainty is the number of additional replays that must all show a difference. A result that
// upstream gives once in ten replays is missed in 26 of a million cases.
const certainty = 100

type outcome struct {
	difference string // first difference with its event, empty: none
	at         int    // index of that event
	seen       tally
	answers    [][]upstreamv1.RecommendedContainerResources // Loadline's, by iteration
}

// judge replays a history until a replay shows no difference, or until one is certain. Upstream
// merges histories in map order, so its recommendation varies when a percentile lies between two
// buckets. A difference counts only if it remains in the given number of additional replays. The
// count restarts when a replay gets farther. Loadline must give the same result in all replays.
func judge(more int, replay func() outcome) outcome {
	first := replay()
	farthest := first
	for left := more; farthest.difference != "" && left > 0; left-- {
		again := replay()
		if i := unequal(first.answers, again.answers); i >= 0 {
			again.difference = fmt.Sprintf("Loadline differs from itself:\n%v\n%v", first.answers[i], again.answers[i])
			return again
		}
		if again.difference == "" || again.at > farthest.at {
			farthest, left = again, more+1
			farthest.seen.wavering = 1
		}
	}
	return farthest
}

func unequal(a, b [][]upstreamv1.RecommendedContainerResources) int {
	for i := range min(len(a), len(b)) {
		equal := slices.EqualFunc(a[i], b[i], func(x, y upstreamv1.RecommendedContainerResources) bool {
			return x.ContainerName == y.ContainerName && slices.EqualFunc(lists(x), lists(y), equalLists)
		})
		if !equal {
			return i
		}
	}
	return -1
}

func TestJudge_FindsRealDifference(t *testing.T) {
	require.NoError(t, features.MutableFeatureGate.Set("PerVPAConfig=true"))
	h := newHistory(firstSeed)
	h.skew = func(o *options) { o.estimate.SafetyMarginFraction += 0.01 }
	end := judge(certainty, func() outcome { return replay(t, h) })
	require.Contains(t, end.difference, "upstream:")
	require.Zero(t, end.seen.wavering)
}

func TestJudge_IgnoresUpstreamNondeterminism(t *testing.T) {
	answer := func(cores string) [][]upstreamv1.RecommendedContainerResources {
		return [][]upstreamv1.RecommendedContainerResources{{{
			ContainerName: "app", Target: corev1.ResourceList{"cpu": resource.MustParse(cores)},
		}}}
	}
	fine, early, late := outcome{at: 0}, outcome{difference: "early", at: 3}, outcome{difference: "late", at: 7}
	for _, tc := range []struct {
		name             string
		runs             []outcome // the last one repeats
		want             string
		replays, wavered int
	}{
		{name: "no difference", runs: []outcome{fine}, replays: 1, wavered: 0},
		{name: "same difference in each replay", runs: []outcome{early}, want: "early", replays: 6, wavered: 0},
		{name: "difference in some replays", runs: []outcome{early, early, early, fine}, replays: 4, wavered: 1},
		{name: "two differences in some replays", runs: []outcome{early, late, early, fine}, replays: 4, wavered: 1},
		{name: "reproducible difference behind one that wavers", runs: []outcome{early, early, late}, want: "late", replays: 8, wavered: 1},
		{name: "difference that some replays do not reach", runs: []outcome{late, early}, want: "late", replays: 6, wavered: 0},
		{name: "Loadline differs from itself", runs: []outcome{
			{difference: "early", at: 3, answers: answer("1")}, {answers: answer("2")},
		}, want: "Loadline differs from itself", replays: 2, wavered: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			replays := 0
			end := judge(5, func() outcome {
				run := tc.runs[min(replays, len(tc.runs)-1)]
				replays++
				return run
			})
			require.Contains(t, end.difference, tc.want)
			require.Equal(t, tc.want == "", end.difference == "")
			require.Equal(t, tc.replays, replays)
			require.Equal(t, tc.wavered, end.seen.wavering)
		})
	}
}
