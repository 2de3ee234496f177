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
	for name, c := range map[string]struct{ requests, limits, wantRequest, wantLimit, declared string }{
		"follows":     {"memory=100Mi", "memory=150Mi", "60Mi", "180Mi", `{"c":{"requests":{"memory":"100Mi"},"limits":{"memory":"150Mi"}}}`},
		"equal stays": {"memory=100Mi", "memory=100Mi", "120Mi", "120Mi", ""},
		"no limit":    {"memory=100Mi", "", "60Mi", "0", ""},
	} {
		for _, lies := range []bool{false, true} {
			pod := testkit.Pod("p", testkit.Container("c", c.requests, c.limits))
			if lies && c.declared != "" {
				pod.Annotations = map[string]string{convert.DeclaredAnnotation: `{"c":{"requests":{"memory":"100Mi"},"limits":{"memory":"101Mi"}}}`}
			}
			m, err := Config{}.Patch(pod, testkit.VPA("v", separate("60Mi", "120Mi")), Constraints{})
			require.NoError(t, err)
			got, err := applied(pod, m.Patch)
			require.NoError(t, err)
			r := got.Spec.Containers[0].Resources
			require.Equal(t, c.wantRequest, r.Requests.Memory().String(), name)
			require.Equal(t, c.wantLimit, r.Limits.Memory().String(), name)
			require.Equal(t, c.declared, got.Annotations[convert.DeclaredAnnotation], name)
			if again := convert.Pod(got).Containers[0].Declared; c.declared != "" {
				require.Equal(t, resources.Amount(150<<20), again.Limit, name)
			}
		}
	}
}

func TestPatch_QuotaCapsSeparateLimit(t *testing.T) {
	pod := testkit.Pod("p", testkit.Container("c", "memory=100Mi", "memory=150Mi"))
	for left, want := range map[string]string{"170Mi": "170Mi", "200Mi": "180Mi", "140Mi": "150Mi"} {
		room := RoomFor(pod, []*corev1.ResourceQuota{quotaOf("limits.memory="+left, "")})
		m, err := Config{}.Patch(pod, testkit.VPA("v", separate("60Mi", "120Mi")), Constraints{Room: room})
		require.NoError(t, err)
		got, err := applied(pod, m.Patch)
		require.NoError(t, err)
		limit, wanted := got.Spec.Containers[0].Resources.Limits.Memory(), testkit.List("memory="+want)
		require.InDelta(t, float64(wanted.Memory().Value()), float64(limit.Value()), 100, "with %s left", left)
		require.Equal(t, "60Mi", got.Spec.Containers[0].Resources.Requests.Memory().String())
	}
}
