package updater

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
)

// withSeparateLimit makes a VPA recommend a memory request and the memory that the limit protects.
func withSeparateLimit(vpa *vpav1.VerticalPodAutoscaler, target, protected string) *vpav1.VerticalPodAutoscaler {
	vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: convert.SeparateMemoryLimit, Status: corev1.ConditionTrue}}
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{ContainerName: "app",
		LowerBound: list("100m", target), Target: list("100m", target), UpperBound: list("100m", protected)}}}
	return vpa
}

func (w *world) updateVPA(vpa *vpav1.VerticalPodAutoscaler) {
	w.t.Helper()
	_, err := w.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Update(w.t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		known, err := w.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister().VerticalPodAutoscalers("shop").Get(vpa.Name)
		return err == nil && len(known.Status.Conditions) == len(vpa.Status.Conditions) &&
			known.Status.Recommendation.ContainerRecommendations[0].UpperBound.Memory().Cmp(*vpa.Status.Recommendation.ContainerRecommendations[0].UpperBound.Memory()) == 0
	}, time.Minute, 5*time.Millisecond)
}

func inPlaceConfig() *Config {
	config := Default()
	config.Disruption.MinReplicas, config.Disruption.FreeResizes = 1, true
	return config
}

func TestSeparateLimit_KeepsDeclaredProportion(t *testing.T) {
	vpa := withSeparateLimit(autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "60Mi", "120Mi")
	w := newWorld(t, inPlaceConfig(), append(deployment(1, nil), vpa)...)
	now := noon
	has := func(request, limit string) {
		t.Helper()
		w.runOnce(now)
		r := w.pod("web-1-0").Spec.Containers[0].Resources
		require.Equal(t, request, r.Requests.Memory().String())
		require.Equal(t, limit, r.Limits.Memory().String())
		w.await("the resize", func(p *corev1.Pod) bool {
			return p.Spec.Containers[0].Resources.Limits.Memory().String() == limit && p.Annotations[convert.DeclaredAnnotation] != ""
		}, "web-1-0")
		now = now.Add(time.Minute)
	}
	has("60Mi", "240Mi")
	require.JSONEq(t, `{"app":{"requests":{"memory":"100Mi"},"limits":{"memory":"200Mi"}}}`, w.pod("web-1-0").Annotations[convert.DeclaredAnnotation])
	require.Equal(t, []string{"patch pods ", "patch pods resize", "patch pods "}, w.writes(), "noted before it is changed")

	w.updateVPA(withSeparateLimit(vpa.DeepCopy(), "80Mi", "150Mi"))
	has("80Mi", "300Mi")
	w.start(inPlaceConfig())
	w.updateVPA(withSeparateLimit(vpa.DeepCopy(), "80Mi", "200Mi"))
	has("80Mi", "400Mi")
	usual := withSeparateLimit(vpa.DeepCopy(), "90Mi", "250Mi")
	usual.Status.Conditions = nil
	w.updateVPA(usual)
	has("90Mi", "180Mi")
}

func TestSeparateLimit_DistinguishesDeclarations(t *testing.T) {
	vpa := withSeparateLimit(autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "60Mi", "130Mi")
	declared := map[string]string{
		"web-1-0": `{"app":{"requests":{"memory":"100Mi"},"limits":{"memory":"150Mi"}}}`,
		"web-1-1": `{"app":{"requests":{"memory":"100Mi"},"limits":{"memory":"200Mi"}}}`,
	}
	w := newWorld(t, inPlaceConfig(), append(deployment(2, func(p *corev1.Pod) {
		p.Annotations = map[string]string{convert.DeclaredAnnotation: declared[p.Name]}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("100m", "60Mi"), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("180Mi")}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app"}}
	}), vpa)...)
	w.runOnce(noon)
	for name, limit := range map[string]string{"web-1-0": "195Mi", "web-1-1": "260Mi"} {
		require.Equal(t, limit, w.pod(name).Spec.Containers[0].Resources.Limits.Memory().String(), name)
	}
}

// Without the note the declared proportion would be lost.
func TestSeparateLimit_RequiresNote(t *testing.T) {
	vpa := withSeparateLimit(autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "60Mi", "120Mi")
	w := newWorld(t, inPlaceConfig(), append(deployment(1, nil), vpa)...)
	w.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "", nil, errors.New("no")
	})
	w.runOnce(noon)
	require.Equal(t, []string{"patch pods "}, w.writes())
	require.Equal(t, "200Mi", w.pod("web-1-0").Spec.Containers[0].Resources.Limits.Memory().String())
}

// After an OOM kill the protected memory may rise without the request.
func TestRaisesMemory_CountsProtectedMemory(t *testing.T) {
	was := withSeparateLimit(autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "60Mi", "120Mi")
	require.True(t, convert.RaisesMemory(&was.Status, &withSeparateLimit(was.DeepCopy(), "60Mi", "130Mi").Status))
	require.True(t, convert.RaisesMemory(&was.Status, &withSeparateLimit(was.DeepCopy(), "70Mi", "120Mi").Status))
	require.False(t, convert.RaisesMemory(&was.Status, &withSeparateLimit(was.DeepCopy(), "50Mi", "120Mi").Status))
	usual := withSeparateLimit(was.DeepCopy(), "60Mi", "130Mi")
	usual.Status.Conditions = nil
	require.False(t, convert.RaisesMemory(&was.Status, &usual.Status), "it is only a bound")
}

func TestSeparateLimit_ForgedNoteDoesNotRaiseLimit(t *testing.T) {
	for _, forged := range []string{"", `{"app":{"requests":{"memory":"60Mi"},"limits":{"memory":"240Mi"}}}`, "{}"} {
		vpa := withSeparateLimit(autoscaler(vpav1.UpdateModeInPlaceOrRecreate), "60Mi", "120Mi")
		w := newWorld(t, inPlaceConfig(), append(deployment(1, nil), vpa)...)
		noted := func(what string, says func(string) bool) {
			w.await(what, func(p *corev1.Pod) bool {
				return p.Spec.Containers[0].Resources.Limits.Memory().String() == "240Mi" && says(p.Annotations[convert.DeclaredAnnotation])
			}, "web-1-0")
		}
		w.runOnce(noon)
		noted("the resize", func(text string) bool { return text != "" })
		w.runOnce(noon.Add(time.Minute))
		for i := range 3 {
			p := w.pod("web-1-0")
			p.Annotations[convert.DeclaredAnnotation] = forged
			require.NoError(t, w.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, "shop"))
			noted("the forged note", func(text string) bool { return text == forged })
			w.runOnce(noon.Add(time.Duration(i+2) * time.Minute))
			require.Equal(t, "240Mi", w.pod("web-1-0").Spec.Containers[0].Resources.Limits.Memory().String(), forged)
		}
	}
}
