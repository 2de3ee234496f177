package mutate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/testkit"
)

// shares enables sharing of CPU and memory without CPU limits.
func shares() *policy.Sharing {
	return &policy.Sharing{Kinds: [resources.Kinds]bool{true, true}, CPULimit: sharing.RemoveLimit, New: true}
}

// peaks recommends a peak as target and an upper bound of memory.
func peaks(target, upper string) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		testkit.Recommend("c", target)(vpa)
		vpa.Status.Recommendation.ContainerRecommendations[0].UpperBound = testkit.List(upper)
	}
}

func TestPatch_SharingSizesNewPods(t *testing.T) {
	quotas := func(hard string) Room {
		return RoomFor(testkit.Pod("p"), []*corev1.ResourceQuota{quotaOf(hard, "")})
	}
	only := vpav1.ContainerControlledValuesRequestsOnly
	for name, c := range map[string]struct {
		requests, limits         string
		room                     Room
		ranges                   []*corev1.LimitRange
		policy                   *vpav1.ContainerResourcePolicy
		daemon, keeps            bool // keeps: CPU limits are kept
		wantRequests, wantLimits string
		updates                  string
		warns                    []string
	}{
		"its peak, and no CPU limit": {requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=3000M",
			wantRequests: "cpu=1250m memory=700M", wantLimits: "memory=1800M", updates: "cpu request, memory request, memory limit, cpu limit removed"},
		"a memory limit is added": {requests: "cpu=2 memory=2000M",
			wantRequests: "cpu=1250m memory=700M", wantLimits: "memory=1800M", updates: "cpu request, memory request, memory limit"},
		"a daemon": {requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=1000M", daemon: true,
			wantRequests: "cpu=2 memory=2000M", wantLimits: "memory=1800M", updates: "memory limit, cpu limit removed"},
		"a daemon that has CPU alone": {requests: "cpu=2", limits: "cpu=4", daemon: true, wantRequests: "cpu=2", wantLimits: "", updates: "cpu limit removed"},
		"nothing it has":              {wantRequests: "", wantLimits: ""},
		"a quota demands CPU limits": {requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=3000M", room: quotas("limits.cpu=8"),
			wantRequests: "cpu=1250m memory=700M", wantLimits: "cpu=4 memory=1800M", updates: "cpu request, memory request, memory limit",
			warns: []string{"CPU limits stay although the pod shares its node, because a ResourceQuota of namespace default requires them"}},
		"CPU limits that a quota demands stay anyway": {requests: "cpu=1 memory=2000M", limits: "cpu=4 memory=3000M", room: quotas("limits.cpu=8"), keeps: true,
			wantRequests: "cpu=1250m memory=700M", wantLimits: "cpu=4 memory=1800M", updates: "cpu request, memory request, memory limit"},
		"a quota cuts the memory limit": {requests: "cpu=2 memory=600M", limits: "memory=900M", room: quotas("limits.memory=1000M"),
			wantRequests: "cpu=1250m memory=611111100", wantLimits: "memory=999999900", updates: "cpu request, memory request, memory limit",
			warns: []string{"container c: memory cut from 700000000 to 611111100 to fit the ResourceQuotas of namespace default"}},
		"a quota cuts that of a daemon": {requests: "cpu=2 memory=600M", limits: "memory=900M", room: quotas("limits.memory=1000M"), daemon: true,
			wantRequests: "cpu=2 memory=600M", wantLimits: "memory=999999900", updates: "memory limit"},
		"RequestsOnly": {requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=3000M", policy: &vpav1.ContainerResourcePolicy{ContainerName: "c", ControlledValues: &only},
			wantRequests: "cpu=1250m memory=700M", wantLimits: "cpu=4 memory=3000M", updates: "cpu request, memory request",
			warns: []string{"container c: cpu: limit NOT changed although the pod shares its node", "container c: memory: limit NOT changed although the pod shares its node"}},
		"a LimitRange with a maximum": {requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=3000M", ranges: []*corev1.LimitRange{testkit.LimitRange("most", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=5 memory=1500M")})},
			wantRequests: "cpu=1250m memory=700M", wantLimits: "cpu=4 memory=1500M", updates: "cpu request, memory request, memory limit",
			warns: []string{"container c: cpu: limit NOT changed although the pod shares its node"}},
	} {
		pod := testkit.Pod("p", testkit.Container("c", c.requests, c.limits))
		vpa := testkit.VPA("v", peaks("cpu=1250m memory=700M", "cpu=2 memory=900M"))
		if c.policy != nil {
			testkit.Policy(*c.policy)(vpa)
		}
		s := shares()
		s.Daemon = c.daemon
		if c.keeps {
			s.CPULimit = sharing.KeepLimit
		}
		m, err := Config{}.Patch(pod, vpa, Constraints{Ranges: convert.Ranges(c.ranges), Room: c.room, Sharing: s})
		require.NoError(t, err)
		got, err := applied(pod, m.Patch)
		require.NoError(t, err)
		r := got.Spec.Containers[0].Resources
		require.Equal(t, convert.Resources(testkit.List(c.wantRequests)), convert.Resources(r.Requests), name)
		require.Equal(t, convert.Resources(testkit.List(c.wantLimits)), convert.Resources(r.Limits), name)
		_, updates, _ := strings.Cut(got.Annotations[convert.UpdatesAnnotation], "container 0: ")
		require.Equal(t, c.updates, updates, name)
		for i, w := range m.Warnings {
			m.Warnings[i] = strings.TrimPrefix(w, "VerticalPodAutoscaler v: ")
		}
		require.Equal(t, c.warns, m.Warnings, name)
		require.Equal(t, c.updates != "", m.Resized, name)
		require.NotContains(t, got.Annotations, convert.DeclaredAnnotation)
	}
}

func TestPatch_SharingWithBoost(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "cpu=2", "cpu=4"))
	vpa := testkit.VPA("v", peaks("cpu=1250m", "cpu=2"), func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3))}}
	})
	m, err := Config{Boost: true}.Patch(pod, vpa, Constraints{Sharing: shares()})
	require.NoError(t, err)
	got, err := applied(pod, m.Patch)
	require.NoError(t, err)
	require.Equal(t, "3750m", got.Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Empty(t, got.Spec.Containers[0].Resources.Limits)
}
