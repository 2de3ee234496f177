package mutate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/testkit"
)

// separate makes a VPA recommend a memory request and a separate memory limit.
func separate(target, protected string) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		testkit.Recommend("c", "memory="+target)(vpa)
		vpa.Status.Recommendation.ContainerRecommendations[0].UpperBound = testkit.List("memory=" + protected)
		vpa.Status.Conditions = append(vpa.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{Type: convert.SeparateMemoryLimit, Status: corev1.ConditionTrue})
	}
}

// The declared memory is recorded because the patch changes the ratio of limit to request. An
// existing annotation of the pod is not trusted.
func TestPatch_AnnotatesDeclaredMemory(t *testing.T) {
	for _, tc := range []struct{ name, requests, limits, wantRequest, wantLimit, declared string }{
		{name: "limit follows", requests: "memory=100Mi", limits: "memory=150Mi", wantRequest: "60Mi", wantLimit: "180Mi",
			declared: `{"c":{"requests":{"memory":"100Mi"},"limits":{"memory":"150Mi"}}}`},
		{name: "equal limit stays equal", requests: "memory=100Mi", limits: "memory=100Mi", wantRequest: "120Mi", wantLimit: "120Mi"},
		{name: "no limit", requests: "memory=100Mi", wantRequest: "60Mi", wantLimit: "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const forged = `{"c":{"requests":{"memory":"100Mi"},"limits":{"memory":"101Mi"}}}`
			for _, lies := range []bool{false, true} {
				pod := testkit.Pod("p", testkit.Container("c", tc.requests, tc.limits))
				if lies && tc.declared != "" {
					pod.Annotations = map[string]string{convert.DeclaredAnnotation: forged}
				}
				m, err := Config{}.Patch(pod, testkit.VPA("v", separate("60Mi", "120Mi")), Constraints{})
				require.NoError(t, err)
				got, err := applied(pod, m.Patch)
				require.NoError(t, err)
				r := got.Spec.Containers[0].Resources
				require.Equal(t, tc.wantRequest, r.Requests.Memory().String())
				require.Equal(t, tc.wantLimit, r.Limits.Memory().String())
				require.Equal(t, tc.declared, got.Annotations[convert.DeclaredAnnotation])
				if again := convert.Pod(got).Containers[0].Declared; tc.declared != "" {
					require.Equal(t, resources.Amount(150<<20), again.Limit)
				}
			}
		})
	}
}

func TestPatch_QuotaCapsSeparateLimit(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "memory=100Mi", "memory=150Mi"))
	for _, tc := range []struct{ name, left, want string }{
		{name: "room for a part of the growth", left: "170Mi", want: "170Mi"},
		{name: "room for the whole limit", left: "200Mi", want: "180Mi"},
		{name: "less room than the minimum", left: "140Mi", want: "150Mi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			room := RoomFor(pod, []*corev1.ResourceQuota{quotaOf("limits.memory="+tc.left, "")})
			m, err := Config{}.Patch(pod, testkit.VPA("v", separate("60Mi", "120Mi")), Constraints{Room: room})
			require.NoError(t, err)
			got, err := applied(pod, m.Patch)
			require.NoError(t, err)
			limit, wanted := got.Spec.Containers[0].Resources.Limits.Memory(), testkit.List("memory="+tc.want)
			require.InDelta(t, float64(wanted.Memory().Value()), float64(limit.Value()), 100)
			require.Equal(t, "60Mi", got.Spec.Containers[0].Resources.Requests.Memory().String())
		})
	}
}
