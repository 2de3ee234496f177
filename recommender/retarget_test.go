package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
)

func (w *world) editTarget(target string) {
	w.t.Helper()
	vpa := w.vpa("web").DeepCopy()
	vpa.Spec.TargetRef.Name = target
	vpa.Generation++
	_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Update(w.t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		cached, err := w.loop.Roster.VPAs.VerticalPodAutoscalers("ns").Get("web")
		return err == nil && cached.Generation == vpa.Generation
	}, time.Minute, time.Millisecond)
}

func worldWithRecommendation(t *testing.T) *world {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 400)
	w.iterate(3)
	require.Len(t, w.recommendations("web"), 1)
	return w
}

// The recommendation is removed even if the new target cannot be read.
func TestRetarget_DropsRecommendation(t *testing.T) {
	w := worldWithRecommendation(t)
	w.editTarget("not-there-yet")
	w.iterate(1)
	require.Empty(t, w.recommendations("web"))
	require.EqualValues(t, 8, w.vpa("web").Status.ObservedGeneration)
	state, _ := w.condition("web", vpav1.ConfigUnsupported)
	require.Equal(t, corev1.ConditionTrue, state)
	w.editTarget("web")
	w.iterate(2)
	require.Len(t, w.recommendations("web"), 1)
	require.EqualValues(t, 9, w.vpa("web").Status.ObservedGeneration)
	require.NoError(t, w.kube.AppsV1().Deployments("ns").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := w.loop.Roster.Targets.Resolve(t.Context(), "ns", w.vpa("web").Spec.TargetRef)
		return err != nil
	}, time.Minute, time.Millisecond)
	w.iterate(2)
	require.Len(t, w.recommendations("web"), 1, "what is published is for this target")
}

// Without checkpoints, a target change during downtime goes unnoticed, so the recommendation keeps
// its generation.
func TestRetarget_KeepsGenerationWhileTargetUnread(t *testing.T) {
	w := worldWithRecommendation(t)
	before := w.recommendations("web")
	w.editTarget("not-there-yet")
	for _, c := range w.checkpoints() {
		require.NoError(t, w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Delete(t.Context(), c.Name, metav1.DeleteOptions{}))
	}
	w.start()
	w.iterate(2)
	require.Equal(t, before, w.recommendations("web"))
	require.EqualValues(t, 7, w.vpa("web").Status.ObservedGeneration)
	state, _ := w.condition("web", vpav1.ConfigUnsupported)
	require.Equal(t, corev1.ConditionTrue, state)
	w.iterate(31)
	require.Empty(t, w.recommendations("web"))
	require.EqualValues(t, 8, w.vpa("web").Status.ObservedGeneration)
}

type unreadableLister struct {
	listers.VerticalPodAutoscalerLister

	name, problem string // no problem: readable
}

func (u *unreadableLister) List(selector labels.Selector) ([]*vpav1.VerticalPodAutoscaler, error) {
	all, err := u.VerticalPodAutoscalerLister.List(selector)
	for i, vpa := range all {
		if vpa.Name == u.name && u.problem != "" {
			all[i] = vpa.DeepCopy()
			all[i].Annotations = map[string]string{vpav1.UnreadableAnnotation: u.problem}
		}
	}
	return all, err
}

func TestUnreadableVPA_KeepsHistory(t *testing.T) {
	w := worldWithRecommendation(t)
	before, samples := w.recommendations("web"), w.checkpoint("web-a").Status.TotalSamplesCount
	broken := &unreadableLister{w.loop.Roster.VPAs, "web", "spec.resourcePolicy: quantity"}
	w.loop.Roster.VPAs = broken
	w.iterate(3)
	require.Equal(t, before, w.recommendations("web"))
	_, message := w.condition("web", vpav1.ConfigUnsupported)
	require.Equal(t, "spec.resourcePolicy: quantity", message)
	broken.problem = ""
	w.iterate(2)
	require.Len(t, w.recommendations("web"), 1)
	state, _ := w.condition("web", vpav1.ConfigUnsupported)
	require.NotEqual(t, corev1.ConditionTrue, state)
	require.GreaterOrEqual(t, w.checkpoint("web-a").Status.TotalSamplesCount, samples)
}
