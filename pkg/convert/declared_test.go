package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestMergeDeclared_RoundTrips(t *testing.T) {
	gets := []policy.ContainerTarget{{Name: "app", Declared: policy.Proportion{Request: 100 << 20, Limit: 150 << 20}}, {Name: "equal"}}
	text, news := MergeDeclared(nil, gets)
	require.True(t, news)
	require.JSONEq(t, `{"app":{"requests":{"memory":"100Mi"},"limits":{"memory":"150Mi"}}}`, text)

	annotations := map[string]string{DeclaredAnnotation: text}
	_, news = MergeDeclared(annotations, gets)
	require.False(t, news, "it is there")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "equal"}}}}
	read := Pod(pod)
	require.Equal(t, gets[0].Declared, read.Containers[0].Declared)
	require.Zero(t, read.Containers[1].Declared)
	require.Zero(t, NewPod(pod).Containers[0].Declared, "a pod that is just being created is what it says")

	more, news := MergeDeclared(annotations, []policy.ContainerTarget{{Name: "b", Declared: policy.Proportion{Request: 1, Limit: 2}}})
	require.True(t, news)
	require.Len(t, ParseDeclared(map[string]string{DeclaredAnnotation: more}), 2, "what was noted of others stays")

	_, news = MergeDeclared(nil, []policy.ContainerTarget{{Name: "app"}})
	require.False(t, news, "no limit is separate")
}

// Users who can change a pod must not prevent the annotation, and so the resize. The API server
// accepts 256 KiB of annotations, but the parser reads at most maxDeclared bytes.
func TestMergeDeclared_StaysReadable(t *testing.T) {
	app := policy.ContainerTarget{Name: "app", Declared: policy.Proportion{Request: 100 << 20, Limit: 150 << 20}}
	for _, entry := range []string{`"%x":{}`, `"%x":{"requests":{"memory":"1E"},"limits":{"memory":"1E"}}`} {
		var foreign []string
		for length := 2; length < maxDeclared-100; {
			foreign = append(foreign, fmt.Sprintf(entry, len(foreign)))
			length += len(foreign[len(foreign)-1]) + 1
		}
		annotations := map[string]string{DeclaredAnnotation: "{" + strings.Join(foreign, ",") + "}"}
		require.NotEmpty(t, ParseDeclared(annotations))
		text, news := MergeDeclared(annotations, []policy.ContainerTarget{app, {Name: "1"}})
		require.True(t, news)
		require.LessOrEqual(t, len(text), maxDeclared)
		require.Equal(t, app.Declared, ParseDeclared(map[string]string{DeclaredAnnotation: text})["app"])
	}
}

// Users who create pods control their annotations.
func TestParseDeclared_InvalidIsEmpty(t *testing.T) {
	for _, text := range []string{"", "x", "[]", `{"a":{"requests":{"memory":"1e-2147483647"}}}`, `{"a":` + string(make([]byte, maxDeclared)) + `}`} {
		require.Empty(t, ParseDeclared(map[string]string{DeclaredAnnotation: text}))
	}
	half := ParseDeclared(map[string]string{DeclaredAnnotation: `{"a":{"requests":{"memory":"1Gi"}}}`})
	require.False(t, half["a"].Known())
}

func TestRules_SeparateLimitFollowsCondition(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false, "": false} {
		vpa := &vpav1.VerticalPodAutoscaler{}
		if status != "" {
			vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: "Other", Status: corev1.ConditionTrue}, {Type: SeparateMemoryLimit, Status: status}}
		}
		vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
			ContainerName: "app",
			Target:        corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("60Mi")},
			UpperBound:    corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("120Mi")},
		}}}
		pod := policy.Pod{Containers: []policy.Container{{Name: "app", Requests: resources.List{}.With(resources.Memory, 100<<20), Limits: resources.List{}.With(resources.Memory, 150<<20)}}}
		got := policy.Fit(pod, Recommendation(vpa.Status.Recommendation), Rules(vpa), policy.Ranges{}).Containers[0]
		limit := map[bool]resources.Amount{true: 180 << 20, false: 90 << 20}[want]
		require.Equal(t, limit, got.Limits.Value(resources.Memory), "condition %q", status)
	}
}
