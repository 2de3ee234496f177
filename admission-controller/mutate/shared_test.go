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
	for _, tc := range []struct {
		name                     string
		requests, limits         string
		room                     Room
		ranges                   []*corev1.LimitRange
		policy                   *vpav1.ContainerResourcePolicy
		daemon, keeps            bool // keeps: CPU limits are kept
		wantRequests, wantLimits string
		updates                  string
		warns                    []string
	}{
		{name: "peak without CPU limit", requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=3000M",
			wantRequests: "cpu=1250m memory=700M", wantLimits: "memory=1800M",
			updates: "cpu request, memory request, memory limit, cpu limit removed"},
		{name: "memory limit is added", requests: "cpu=2 memory=2000M", wantRequests: "cpu=1250m memory=700M", wantLimits: "memory=1800M",
			updates: "cpu request, memory request, memory limit"},
		{name: "daemon keeps its requests", requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=1000M", daemon: true,
			wantRequests: "cpu=2 memory=2000M", wantLimits: "memory=1800M", updates: "memory limit, cpu limit removed"},
		{name: "daemon without memory", requests: "cpu=2", limits: "cpu=4", daemon: true, wantRequests: "cpu=2",
			updates: "cpu limit removed"},
		{name: "container without resources"},
		{name: "quota requires CPU limits", requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=3000M", room: quotas("limits.cpu=8"),
			wantRequests: "cpu=1250m memory=700M", wantLimits: "cpu=4 memory=1800M", updates: "cpu request, memory request, memory limit",
			warns: []string{"CPU limits stay although the pod shares its node, because a ResourceQuota of namespace default requires them"}},
		{name: "quota and settings keep CPU limits", requests: "cpu=1 memory=2000M", limits: "cpu=4 memory=3000M",
			room: quotas("limits.cpu=8"), keeps: true, wantRequests: "cpu=1250m memory=700M", wantLimits: "cpu=4 memory=1800M",
			updates: "cpu request, memory request, memory limit"},
		{name: "quota cuts the memory limit", requests: "cpu=2 memory=600M", limits: "memory=900M", room: quotas("limits.memory=1000M"),
			wantRequests: "cpu=1250m memory=611111100", wantLimits: "memory=999999900",
			updates: "cpu request, memory request, memory limit",
			warns:   []string{"container c: memory cut from 700000000 to 611111100 to fit the ResourceQuotas of namespace default"}},
		{name: "quota cuts the memory limit of a daemon", requests: "cpu=2 memory=600M", limits: "memory=900M",
			room: quotas("limits.memory=1000M"), daemon: true, wantRequests: "cpu=2 memory=600M", wantLimits: "memory=999999900",
			updates: "memory limit"},
		{name: "RequestsOnly", requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=3000M",
			policy: &vpav1.ContainerResourcePolicy{ContainerName: "c", ControlledValues: &only}, wantRequests: "cpu=1250m memory=700M",
			wantLimits: "cpu=4 memory=3000M", updates: "cpu request, memory request",
			warns: []string{"container c: cpu: limit NOT changed although the pod shares its node", "container c: memory: limit NOT changed although the pod shares its node"}},
		{name: "LimitRange with a maximum", requests: "cpu=2 memory=2000M", limits: "cpu=4 memory=3000M",
			ranges: []*corev1.LimitRange{testkit.LimitRange("most",
				corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=5 memory=1500M")})},
			wantRequests: "cpu=1250m memory=700M", wantLimits: "cpu=4 memory=1500M", updates: "cpu request, memory request, memory limit",
			warns: []string{"container c: cpu: limit NOT changed although the pod shares its node"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := testkit.Pod("p", testkit.Container("c", tc.requests, tc.limits))
			vpa := testkit.VPA("v", peaks("cpu=1250m memory=700M", "cpu=2 memory=900M"))
			if tc.policy != nil {
				testkit.Policy(*tc.policy)(vpa)
			}
			s := shares()
			s.Daemon = tc.daemon
			if tc.keeps {
				s.CPULimit = sharing.KeepLimit
			}
			m, err := Config{}.Patch(pod, vpa, Constraints{Ranges: convert.Ranges(tc.ranges), Room: tc.room, Sharing: s})
			require.NoError(t, err)
			got, err := applied(pod, m.Patch)
			require.NoError(t, err)
			r := got.Spec.Containers[0].Resources
			require.Equal(t, convert.Resources(testkit.List(tc.wantRequests)), convert.Resources(r.Requests))
			require.Equal(t, convert.Resources(testkit.List(tc.wantLimits)), convert.Resources(r.Limits))
			_, updates, _ := strings.Cut(got.Annotations[convert.UpdatesAnnotation], "container 0: ")
			require.Equal(t, tc.updates, updates)
			for i, w := range m.Warnings {
				m.Warnings[i] = strings.TrimPrefix(w, "VerticalPodAutoscaler v: ")
			}
			require.Equal(t, tc.warns, m.Warnings)
			require.Equal(t, tc.updates != "", m.Resized)
			require.NotContains(t, got.Annotations, convert.DeclaredAnnotation)
		})
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
