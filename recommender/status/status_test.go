package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

func now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func recommended(name string) Recommended {
	return Recommended{ContainerName: name, Target: list("1", "1Gi"), LowerBound: list("500m", "512Mi"), UpperBound: list("2", "2Gi"), UncappedTarget: list("1", "1Gi")}
}

func TestCompose_SetsConditionsOfHealthyVPA(t *testing.T) {
	old := metav1.NewTime(now().Add(-time.Hour))
	vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
	vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{
		{Type: "Zebra", Status: corev1.ConditionTrue, LastTransitionTime: old},
		{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue, LastTransitionTime: old, ObservedGeneration: 3, Message: "stale"},
		{Type: vpav1.ConfigDeprecated, Status: corev1.ConditionTrue},
		{Type: vpav1.ConfigUnsupported, Status: corev1.ConditionTrue},
		{Type: vpav1.NoPodsMatched, Status: corev1.ConditionTrue},
		{Type: TargetConflict, Status: corev1.ConditionTrue},
		{Type: TargetHeld, Status: corev1.ConditionTrue},
	}
	s := Compose(vpa, Outcome{Recommendation: []Recommended{recommended("a")}, Pods: 1, History: 49 * time.Hour, Histories: []convert.ContainerHistory{{Name: "a", Span: 49 * time.Hour}}}, now())
	require.Equal(t, []vpav1.VerticalPodAutoscalerCondition{
		{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue, LastTransitionTime: old},
		{Type: SufficientHistory, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now()), Message: "the usage seen of every container covers at least 2 days"},
		{Type: "Zebra", Status: corev1.ConditionTrue, LastTransitionTime: old},
	}, s.Conditions)
	require.EqualValues(t, 4, s.ObservedGeneration)
	require.Len(t, vpa.Status.Conditions, 7, "the object of the cache is not touched")
}

func TestCompose_ReportsTargetErrorAndConflict(t *testing.T) {
	s := Compose(&vpav1.VerticalPodAutoscaler{}, Outcome{TargetError: "the target is gone", Conflict: "VPA x is older"}, now())
	types := []vpav1.VerticalPodAutoscalerConditionType{}
	for _, c := range s.Conditions {
		types = append(types, c.Type)
		require.True(t, c.LastTransitionTime.Time.Equal(now()))
	}
	require.Equal(t, []vpav1.VerticalPodAutoscalerConditionType{vpav1.ConfigUnsupported, vpav1.NoPodsMatched, vpav1.RecommendationProvided, TargetConflict}, types)
	require.Equal(t, "the target is gone", s.Conditions[0].Message)
	require.Equal(t, "NoPodsMatched", s.Conditions[2].Reason)
	require.Equal(t, corev1.ConditionFalse, s.Conditions[2].Status)
	require.NotNil(t, s.Recommendation)

	s = Compose(&vpav1.VerticalPodAutoscaler{}, Outcome{Pods: 1}, now())
	require.Len(t, s.Conditions, 1)
	require.Empty(t, s.Conditions[0].Reason)
}

func TestWriter_SkipsUnchangedStatus(t *testing.T) {
	vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	client := fake.NewSimpleClientset(vpa)
	w := Writer{Client: client}
	o := Outcome{Recommendation: []Recommended{recommended("a")}, Pods: 1}
	written, err := w.Write(t.Context(), vpa, Compose(vpa, o, now()))
	require.NoError(t, err)
	require.True(t, written)
	require.Equal(t, "status", client.Actions()[0].GetSubresource())

	stored, err := client.AutoscalingV1().VerticalPodAutoscalers("ns").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	same := o
	same.Recommendation = []Recommended{recommended("a")}
	same.Recommendation[0].Target = list("1000m", "1024Mi")
	written, err = w.Write(t.Context(), stored, Compose(stored, same, now().Add(time.Hour)))
	require.NoError(t, err)
	require.False(t, written, "the same values, written differently")

	_, err = w.Write(t.Context(), &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone"}}, Compose(stored, o, now()))
	require.ErrorContains(t, err, "write the status of VPA ns/gone")
}

func TestCompose_HistoryChangesStatusOncePerStep(t *testing.T) {
	vpa := &vpav1.VerticalPodAutoscaler{}
	writes := 0
	for minutes := range 10 * 24 * 60 {
		seen := time.Duration(minutes) * time.Minute
		fresh := Compose(vpa, Outcome{
			Recommendation: []Recommended{recommended("a")}, Pods: 1, History: seen, Histories: []convert.ContainerHistory{{Name: "a", Span: seen}},
		}, now())
		if !equality.Semantic.DeepEqual(fresh, vpa.Status) {
			vpa.Status = fresh
			writes++
		}
	}
	require.Equal(t, len(convert.HistorySteps), writes)
	require.Equal(t, []vpav1.VerticalPodAutoscalerConditionType{vpav1.RecommendationProvided, SufficientHistory},
		[]vpav1.VerticalPodAutoscalerConditionType{vpa.Status.Conditions[0].Type, vpa.Status.Conditions[1].Type})
}
