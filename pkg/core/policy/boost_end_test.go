package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// boosted runs with 400m, 200m of which are the boost.
func boosted(name string) BoostedContainer {
	return BoostedContainer{Boosted: true, Observed: true,
		Current:  Container{Name: name, Requests: resources.NewList(400, 100*mi), Limits: resources.NewList(800, 200*mi)},
		Original: Container{Requests: resources.NewList(200, 100*mi), Limits: resources.NewList(400, 200*mi)}}
}

func pod(containers ...BoostedContainer) BoostedPod {
	return BoostedPod{Ready: true, ReadySince: noon.Add(-time.Minute), Containers: containers}
}

func lasting(name string, d time.Duration) Entry {
	rule := Default()
	rule.Boost = Boost{Type: BoostFactor, Factor: 2, Duration: d}
	return Entry{Container: name, Rule: rule, OwnBoost: true}
}

func targetOnly(r resources.List) map[string]resources.Bounds {
	return map[string]resources.Bounds{"a": {Target: r}}
}

func TestEvaluateBoost_ExpiresAfterDuration(t *testing.T) {
	a := BoostInputs{AppliesRecommendation: true, Recommendation: targetOnly(resources.NewList(220, 120*mi)),
		Rules: Rules{Entries: []Entry{lasting("a", time.Minute), lasting("b", time.Hour)}}}
	v := EvaluateBoost(pod(boosted("a"), boosted("b")), a, noon)
	require.Empty(t, v.Expired, "it lasts for a minute, the last moment included")
	require.Equal(t, time.Millisecond, v.NextExpiry)

	v = EvaluateBoost(pod(boosted("a"), boosted("b")), a, noon.Add(1))
	require.Equal(t, []string{"a"}, v.Expired)
	require.Len(t, v.Targets, 1, "the other is still boosted")
	require.Equal(t, resources.NewList(220, 120*mi), v.Targets[0].Requests)
	require.Equal(t, resources.NewList(440, 240*mi), v.Targets[0].Limits, "limits keep the proportion that they were written with")
	require.Equal(t, 59*time.Minute-1, v.NextExpiry)

	p := pod(boosted("a"))
	p.Ready = false
	require.Equal(t, BoostResult{}, EvaluateBoost(p, a, noon.Add(time.Hour)))
	require.Equal(t, []string{"a"}, EvaluateBoost(pod(boosted("a")), BoostInputs{}, noon).Expired, "without duration it ends when the pod is ready")
}

func TestEvaluateBoost_MemoryTargetDoesNotKeepBoost(t *testing.T) {
	a := BoostInputs{AppliesRecommendation: true, Recommendation: targetOnly(resources.List{}.With(resources.Memory, 120*mi))}
	v := EvaluateBoost(pod(boosted("a")), a, noon)
	require.Equal(t, resources.NewList(200, 120*mi), v.Targets[0].Requests)
	require.Equal(t, resources.NewList(400, 240*mi), v.Targets[0].Limits)
}

func TestEvaluateBoost_RestoresOriginalWithoutTarget(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   BoostInputs
	}{
		{name: "no VPA", in: BoostInputs{}},
		{name: "no recommendation", in: BoostInputs{AppliesRecommendation: true}},
		{name: "update mode Off", in: BoostInputs{Recommendation: targetOnly(resources.NewList(220, 120*mi))}},
		{name: "container mode Off",
			in: BoostInputs{AppliesRecommendation: true, Recommendation: targetOnly(resources.NewList(220, 120*mi)),
				Rules: Rules{Entries: []Entry{{Container: "a", Rule: Rule{Off: true}}}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			other := BoostedContainer{Observed: true, Current: Container{Name: "b", Requests: resources.NewList(5, 5)}}
			v := EvaluateBoost(pod(boosted("a"), other), tc.in, noon)
			require.Len(t, v.Targets, 1)
			require.Equal(t, resources.NewList(200, 100*mi), v.Targets[0].Requests)
			require.Equal(t, resources.NewList(400, 200*mi), v.Targets[0].Limits)
		})
	}
}

func TestEvaluateBoost_NeverRaisesResources(t *testing.T) {
	c := boosted("a")
	c.Original.Requests, c.Original.Limits = resources.NewList(9000, 900*mi), resources.NewList(9000, 900*mi)
	v := EvaluateBoost(pod(c), BoostInputs{}, noon)
	require.Equal(t, c.Current.Requests, v.Targets[0].Requests)
	require.Equal(t, c.Current.Limits, v.Targets[0].Limits)
}

func TestEvaluateBoost_KeepsMinCPURequest(t *testing.T) {
	c := boosted("a")
	c.Original = Container{}
	v := EvaluateBoost(pod(c), BoostInputs{}, noon)
	require.Equal(t, resources.List{}.With(resources.CPU, 1), v.Targets[0].Requests)
}

func TestEvaluateBoost_ResizesOtherContainers(t *testing.T) {
	a := BoostInputs{AppliesRecommendation: true, Recommendation: map[string]resources.Bounds{"b": {Target: resources.NewList(7, 7)}, "late": {Target: resources.NewList(7, 7)}}}
	other := BoostedContainer{Observed: true, Current: Container{Name: "b", Requests: resources.NewList(5, 5)}}
	late := BoostedContainer{Current: Container{Name: "late", Requests: resources.NewList(5, 5)}}
	v := EvaluateBoost(pod(boosted("a"), other, late), a, noon)
	require.Len(t, v.Targets, 2)
	require.Equal(t, "b", v.Targets[1].Name)
	require.Empty(t, EvaluateBoost(pod(other), a, noon).Targets, "nothing was boosted")
}
