package status

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

func TestEqualStatus_MatchesSemanticDeepEqual(t *testing.T) {
	for value, fields := range map[any]int{
		vpav1.VerticalPodAutoscalerCondition{}: 6,
		&vpav1.VerticalPodAutoscalerStatus{}:   3,
		&vpav1.RecommendedPodResources{}:       1,
		&Recommended{}:                         5,
	} {
		kind := reflect.Indirect(reflect.ValueOf(value)).Type()
		require.Equal(t, fields, kind.NumField(), "%s has a field that is not compared", kind)
	}
	base := Compose(&vpav1.VerticalPodAutoscaler{}, Outcome{Recommendation: []Recommended{recommended("a"), recommended("b")}, Pods: 1}, now())
	second := func(s *vpav1.VerticalPodAutoscalerStatus) *Recommended {
		return &s.Recommendation.ContainerRecommendations[1]
	}
	for _, tc := range []struct {
		name   string
		change func(*vpav1.VerticalPodAutoscalerStatus)
	}{
		{name: "no change", change: func(*vpav1.VerticalPodAutoscalerStatus) {}},
		{name: "generation", change: func(s *vpav1.VerticalPodAutoscalerStatus) { s.ObservedGeneration++ }},
		{name: "no recommendation", change: func(s *vpav1.VerticalPodAutoscalerStatus) { s.Recommendation = nil }},
		{name: "no containers", change: func(s *vpav1.VerticalPodAutoscalerStatus) { s.Recommendation.ContainerRecommendations = nil }},
		{name: "container name", change: func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).ContainerName = "c" }},
		{name: "target", change: func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).Target = list("1", "2Gi") }},
		{name: "same target", change: func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).Target = list("1000m", "1024Mi") }},
		{name: "uncapped", change: func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).UncappedTarget = list("2", "1Gi") }},
		{name: "lower bound", change: func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).LowerBound = list("501m", "512Mi") }},
		{name: "upper bound without CPU",
			change: func(s *vpav1.VerticalPodAutoscalerStatus) { delete(second(s).UpperBound, corev1.ResourceCPU) }},
		{name: "empty upper bound", change: func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).UpperBound = corev1.ResourceList{} }},
		{name: "no upper bound", change: func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).UpperBound = nil }},
		{name: "no conditions", change: func(s *vpav1.VerticalPodAutoscalerStatus) { s.Conditions = nil }},
		{name: "condition", change: func(s *vpav1.VerticalPodAutoscalerStatus) { s.Conditions[1].Message = "x" }},
		{name: "transition", change: func(s *vpav1.VerticalPodAutoscalerStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(now().Add(time.Hour))
		}},
		{name: "time zone", change: func(s *vpav1.VerticalPodAutoscalerStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(now().In(time.FixedZone("x", 3600)))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			other := base.DeepCopy()
			tc.change(other)
			require.Equal(t, equality.Semantic.DeepEqual(&base, other), equalStatus(&base, other))
			require.Equal(t, equality.Semantic.DeepEqual(other, &base), equalStatus(other, &base))
		})
	}
}
