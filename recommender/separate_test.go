package recommender

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/convert"
)

func withMemory(request, limit string) *corev1.Pod {
	p := aPod("web-1", "web", "a")
	r := &p.Spec.Containers[0].Resources
	r.Requests[corev1.ResourceMemory] = resource.MustParse(request)
	r.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	return p
}

// quietDay runs one hour with a memory usage of 2000 MiB and 32 hours with 600 MiB.
func (w *world) quietDay() {
	w.setUsage("web-1", "a", 100, 2000)
	w.iterate(60)
	w.setUsage("web-1", "a", 100, 600)
	w.iterate(32 * 60)
}

func (w *world) memoryTargetAndBound() (request, protected float64) {
	w.t.Helper()
	c := w.recommendations("web")[0]
	return float64(c.Target.Memory().Value()) / (1 << 20), float64(c.UpperBound.Memory().Value()) / (1 << 20)
}

// The request follows the last day, the limit covers the worst day, also after a restart.
func TestFollowingMemory_SeparatesRequestAndLimit(t *testing.T) {
	w := newWorld(t, deployment("web"), withMemory("1Gi", "1536Mi"), webVPA("loadline:memory=following")).start()
	w.quietDay()
	request, protected := w.memoryTargetAndBound()
	require.InEpsilon(t, 660, request, 0.01)
	require.Greater(t, protected, 2200.0)
	state, message := w.condition("web", convert.SeparateMemoryLimit)
	require.Equal(t, corev1.ConditionTrue, state)
	require.Equal(t, "memory requests follow usage; a memory limit is the upper bound x declared limit / declared request", message)

	w.restart()
	w.iterate(5)
	again, still := w.memoryTargetAndBound()
	require.InEpsilon(t, request, again, 0.01)
	require.InEpsilon(t, protected, still, 0.02)

	w.setRecipe("loadline")
	w.iterate(2)
	state, _ = w.condition("web", convert.SeparateMemoryLimit)
	require.Empty(t, state)
	usual, bound := w.memoryTargetAndBound()
	require.InEpsilon(t, protected, usual, 0.02, "what was protected is requested")
	require.InEpsilon(t, 1.3*usual, bound, 0.01)
}

func TestFollowingMemory_KeepsRequestEqualToLimit(t *testing.T) {
	w := newWorld(t, deployment("web"), withMemory("1Gi", "1Gi"), webVPA("loadline:memory=following")).start()
	w.quietDay()
	request, protected := w.memoryTargetAndBound()
	require.Equal(t, protected, request)
	require.Greater(t, protected, 2200.0)
	_, message := w.condition("web", convert.SeparateMemoryLimit)
	require.Contains(t, message, "; the request stays equal to the limit in containers: a")
}

// Without the checkpoint the worst day is unknown, so neither value falls. The request still rises
// with usage.
func TestFollowingMemory_HoldsWithoutHistory(t *testing.T) {
	w := newWorld(t, deployment("web"), withMemory("1Gi", "1536Mi"), webVPA("loadline:memory=following")).start()
	w.quietDay()
	request, protected := w.memoryTargetAndBound()
	for _, c := range w.checkpoints() {
		require.NoError(t, w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Delete(t.Context(), c.Name, metav1.DeleteOptions{}))
	}
	w.restart()
	w.iterate(10)
	again, still := w.memoryTargetAndBound()
	require.InEpsilon(t, protected, still, 1e-6)
	require.GreaterOrEqual(t, again, request)
	_, message := w.condition("web", "TargetHeld")
	require.Contains(t, message, "memory of container a")

	w.setUsage("web-1", "a", 100, 800)
	w.iterate(5)
	again, still = w.memoryTargetAndBound()
	require.Greater(t, again, 880.0)
	require.InEpsilon(t, protected, still, 1e-6)

	w.setRecipe("loadline")
	w.iterate(2)
	usual, _ := w.memoryTargetAndBound()
	require.InEpsilon(t, protected, usual, 1e-6, "what limits protected is held as what is requested")
}
