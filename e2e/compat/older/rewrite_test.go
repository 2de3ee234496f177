package older

import (
	"testing"

	"github.com/stretchr/testify/require"
	autoscaling "k8s.io/api/autoscaling/v1"
	olderv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"

	"loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
)

// rewritten returns a VPA after an update like that of Goldilocks, which replaces the labels and
// the whole spec with its own types.
func rewritten(t *testing.T, vpa *v1.VerticalPodAutoscaler) *v1.VerticalPodAutoscaler {
	t.Helper()
	var theirs olderv1.VerticalPodAutoscaler
	decode(t, encode(t, vpa), &theirs)
	off, one := olderv1.UpdateModeOff, int32(1)
	theirs.Labels = map[string]string{"creator": "Fairwinds", "source": "goldilocks"}
	theirs.Spec = olderv1.VerticalPodAutoscalerSpec{
		TargetRef:      &autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		UpdatePolicy:   &olderv1.PodUpdatePolicy{UpdateMode: &off, MinReplicas: &one},
		ResourcePolicy: &olderv1.PodResourcePolicy{ContainerPolicies: []olderv1.ContainerResourcePolicy{{ContainerName: "istio-proxy"}}},
	}
	var after v1.VerticalPodAutoscaler
	decode(t, encode(t, theirs), &after)
	return &after
}

// Loadline's settings of a VPA are annotations, which such an update preserves.
func TestGoldilocksUpdate_KeepsAnnotationsAndStatus(t *testing.T) {
	each(t, func(vpa v1.VerticalPodAutoscaler) {
		vpa.Annotations = map[string]string{recipe.Annotation: "loadline:memory=following", fleet.SkipAnnotation: "true", fleet.ModeAnnotation: "Observe"}
		after := rewritten(t, &vpa)
		require.Equal(t, vpa.Annotations, after.Annotations)
		require.Equal(t, "Fairwinds", after.Labels["creator"])
		require.Equal(t, v1.UpdateModeOff, *after.Spec.UpdatePolicy.UpdateMode)
		require.Equal(t, vpa.UID, after.UID)
		// The status is a subresource, so such an update does not write it. Its recommendations
		// must be readable.
		var theirs olderv1.VerticalPodAutoscaler
		decode(t, encode(t, vpa), &theirs)
		if vpa.Status.Recommendation == nil {
			require.Nil(t, theirs.Status.Recommendation)
			return
		}
		require.Len(t, theirs.Status.Recommendation.ContainerRecommendations, len(vpa.Status.Recommendation.ContainerRecommendations))
		for i, c := range vpa.Status.Recommendation.ContainerRecommendations {
			read := theirs.Status.Recommendation.ContainerRecommendations[i]
			require.JSONEq(t, string(encode(t, []any{c.Target, c.LowerBound, c.UpperBound, c.UncappedTarget})),
				string(encode(t, []any{read.Target, read.LowerBound, read.UpperBound, read.UncappedTarget})))
		}
	})
}
