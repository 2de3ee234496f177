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
	for name, change := range map[string]func(*vpav1.VerticalPodAutoscalerStatus){
		"nothing":           func(*vpav1.VerticalPodAutoscalerStatus) {},
		"generation":        func(s *vpav1.VerticalPodAutoscalerStatus) { s.ObservedGeneration++ },
		"no recommendation": func(s *vpav1.VerticalPodAutoscalerStatus) { s.Recommendation = nil },
		"fewer":             func(s *vpav1.VerticalPodAutoscalerStatus) { s.Recommendation.ContainerRecommendations = nil },
		"name":              func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).ContainerName = "c" },
		"target":            func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).Target = list("1", "2Gi") },
		"same target":       func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).Target = list("1000m", "1024Mi") },
		"uncapped":          func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).UncappedTarget = list("2", "1Gi") },
		"lower":             func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).LowerBound = list("501m", "512Mi") },
		"upper":             func(s *vpav1.VerticalPodAutoscalerStatus) { delete(second(s).UpperBound, corev1.ResourceCPU) },
		"empty":             func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).UpperBound = corev1.ResourceList{} },
		"none":              func(s *vpav1.VerticalPodAutoscalerStatus) { second(s).UpperBound = nil },
		"no conditions":     func(s *vpav1.VerticalPodAutoscalerStatus) { s.Conditions = nil },
		"condition":         func(s *vpav1.VerticalPodAutoscalerStatus) { s.Conditions[1].Message = "x" },
		"transition": func(s *vpav1.VerticalPodAutoscalerStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(now().Add(time.Hour))
		},
		"time zone": func(s *vpav1.VerticalPodAutoscalerStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(now().In(time.FixedZone("x", 3600)))
		},
	} {
		other := base.DeepCopy()
		change(other)
		require.Equal(t, equality.Semantic.DeepEqual(&base, other), equalStatus(&base, other), name)
		require.Equal(t, equality.Semantic.DeepEqual(other, &base), equalStatus(other, &base), name)
	}
}
