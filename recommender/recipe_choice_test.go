package recommender

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/recommender/status"
)

// Samples are missing if a workload is scaled to zero, or after a restart without metrics.
func TestNewRecipe_KeepsTargetWithoutSamples(t *testing.T) {
	for name, begin := range map[string]func(*world){
		"asked for by the annotation": func(w *world) { w.setRecipe("loadline") },
		"asked for by the flag":       func(w *world) { w.config.Recipe = "crane"; w.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			w := startedWorld(t, "")
			w.simulateUsage(600, 660)
			before := w.recommendations("web")[0]
			w.sourceErr = errors.New("no metrics")
			begin(w)
			w.iterate(3)
			after := w.recommendations("web")[0]
			require.Equal(t, before.Target.Cpu().String(), after.Target.Cpu().String())
			require.Equal(t, before.Target.Memory().String(), after.Target.Memory().String())
			require.Equal(t, convert.Bounds(before), convert.Bounds(after))
			require.Equal(t, before.UncappedTarget.Memory().String(), after.UncappedTarget.Memory().String())
		})
	}
}

// An invalid annotation must not affect other VPAs.
func TestInvalidRecipe_FallsBackToFlag(t *testing.T) {
	w := newWorld(t, deployment("web"), deployment("other"), podWithCPULimit("750m"), aPod("other-1", "other", "a"), webVPA("loadline:cpu=frantic"), aVPA("other", "other", time.Hour)).start()
	w.setUsage("other-1", "a", 300, 300)
	w.simulateUsage(600, 605)
	wrong, message := w.condition("web", status.InvalidRecipe)
	require.Equal(t, corev1.ConditionTrue, wrong)
	require.Equal(t, `annotation loadline.dev/recipe: recipe "loadline:cpu=frantic": cpu is "frantic": must be one of calm, calm-lean, calm-safe, tracking, tracking-lean, tracking-safe, mixed, shared; `+
		`using recipe "vpa" of the recommender until this is fixed`, message)
	require.NotEmpty(t, w.recommendations("web"))
	require.NotEmpty(t, w.recommendations("other"))
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.recipes.WithLabelValues("vpa", "invalid_annotation")))
	wrong, _ = w.condition("other", status.InvalidRecipe)
	require.Empty(t, wrong)

	w.setRecipe("loadline:cpu=tracking")
	w.simulateUsage(605, 610)
	wrong, _ = w.condition("web", status.InvalidRecipe)
	require.Empty(t, wrong)
	w.setRecipe("loadlin")
	w.simulateUsage(610, 611)
	require.Len(t, w.loop.Model.Find("ns", "web").Sketches, 1, "a slip does not cost what is known")
}

func TestInvalidRecipe_KeepsSketchAcrossRestarts(t *testing.T) {
	w := startedWorld(t, "loadline")
	w.simulateUsage(600, 660)
	w.setRecipe("loadlin")
	w.simulateUsage(660, 665)
	w.loop.Close(t.Context(), w.now)
	for range 2 {
		w.restart()
		w.simulateUsage(665, 670)
		require.Empty(t, w.loop.Model.Find("ns", "web").Sketches, "nobody needs them")
		w.loop.Close(t.Context(), w.now)
	}
	w.setRecipe("loadline")
	w.simulateUsage(670, 680)
	v := w.loop.Model.Find("ns", "web")
	covered, _ := v.Sketches["a"].Coverage(resources.Memory)
	require.Equal(t, 84*time.Minute, covered, "from the first start on")
	require.Empty(t, v.SavedSketches)
}

// The histogram is used without the sketch, and no target is lowered.
func TestRestore_ReportsCorruptSketch(t *testing.T) {
	w := startedWorld(t, "loadline")
	w.simulateUsage(600, 700)
	w.loop.Close(t.Context(), w.now)
	before := w.memory("web")
	c := w.checkpoint("web-a")
	var annotation map[string]any
	require.NoError(t, json.Unmarshal([]byte(c.Annotations[checkpoint.OpenWindows]), &annotation))
	require.NotEmpty(t, annotation["trail"])
	annotation["trail"] = "AAAA////"
	text, err := json.Marshal(annotation)
	require.NoError(t, err)
	c.Annotations[checkpoint.OpenWindows] = string(text)
	w.update(c)
	w.restart()
	w.setUsage("web-1", "a", 100, 100)
	w.iterate(20)
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.checkpoints.WithLabelValues("mended")))
	require.Equal(t, before, w.memory("web"))
}

// Another recommender continues the histograms but not the sketch. The older sketch must not lower
// the target that it published.
func TestRestore_HoldsTargetOfOtherRecommender(t *testing.T) {
	w := startedWorld(t, "loadline")
	w.setUsage("web-1", "a", 100, 300)
	w.iterate(120)
	w.loop.Close(t.Context(), w.now)

	w.now = w.now.Add(72 * time.Hour)
	c := w.checkpoint("web-a")
	c.Status.LastUpdateTime, c.Status.LastSampleStart = metav1.NewTime(w.now), metav1.NewTime(w.now)
	c.Status.TotalSamplesCount += 72 * 60
	w.update(c)
	v := w.vpa("web")
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("2Gi")}
	v.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "a", Target: list, LowerBound: list, UpperBound: list, UncappedTarget: list}}}
	_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
	require.NoError(t, err)

	w.restart()
	w.setUsage("web-1", "a", 700, 300)
	w.iterate(20)
	require.Equal(t, "2", w.recommendations("web")[0].Target.Cpu().String())
	require.Equal(t, "2Gi", w.recommendations("web")[0].Target.Memory().String())
	held, message := w.condition("web", status.TargetHeld)
	require.Equal(t, corev1.ConditionTrue, held)
	require.Contains(t, message, "cpu and memory of container a")
	w.iterate(24 * 60)
	require.Less(t, w.recommendations("web")[0].Target.Cpu().MilliValue(), int64(2000), "a day is enough")
}

func TestRecipeFlag_AppliesWithoutAnnotation(t *testing.T) {
	w := newWorld(t, deployment("web"), podWithCPULimit("750m"), webVPA(""))
	w.config.Recipe = "loadline"
	w.start().simulateUsage(600, 605)
	require.Len(t, w.loop.Model.Find("ns", "web").Sketches, 1)
	_, err := parse("--recipe=loadline:salt=1")
	require.ErrorContains(t, err, `--recipe=loadline:salt=1: recipe "loadline:salt=1": "salt" does not exist: must be one of`)
	_, err = parse("--recipe=loadline:cpu=tracking")
	require.NoError(t, err)
}

// The VPA reports the number of points, and an existing recommendation stays.
func TestAttune_WaitsForPoints(t *testing.T) {
	for name, before := range map[string]string{"new": "attune", "served by another recipe": ""} {
		t.Run(name, func(t *testing.T) {
			w := startedWorld(t, before)
			w.setUsage("web-1", "a", 300, 300)
			if before == "" {
				w.iterate(5)
				w.setRecipe("attune")
			}
			published := w.recommendations("web")
			w.iterate(63)
			require.Equal(t, published, w.recommendations("web"))
			says := vpav1.RecommendationProvided
			if before == "" {
				says = status.SufficientHistory
			}
			provided, message := w.condition("web", says)
			require.Equal(t, corev1.ConditionFalse, provided)
			require.Contains(t, message, "cpu of container a: 12 of 48, memory of container a: 12 of 48")
			w.iterate(180)
			require.NotEqual(t, published, w.recommendations("web"))
			provided, _ = w.condition("web", vpav1.RecommendationProvided)
			require.Equal(t, corev1.ConditionTrue, provided)
			_, message = w.condition("web", status.SufficientHistory)
			require.NotContains(t, message, "of 48")
		})
	}
}

// attune changes a request by a fraction and waits an hour after each change.
func TestAttune_KeepsCooldownAcrossRestarts(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"saved":  func(w *world) { w.loop.Close(t.Context(), w.now) },
		"killed": func(*world) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := startedWorld(t, "attune")
			w.setUsage("web-1", "a", 2000, 2000)
			w.iterate(245)
			target := func() int64 { return w.recommendations("web")[0].Target.Cpu().MilliValue() }
			require.EqualValues(t, 450, target(), "half as much again as the request")
			pod := podWithCPULimit("750m")
			pod.ResourceVersion = "2"
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("450m")
			_, err := w.kube.CoreV1().Pods("ns").Update(t.Context(), pod, metav1.UpdateOptions{})
			require.NoError(t, err)
			for range 5 {
				w.iterate(9)
				require.EqualValues(t, 450, target())
				lose(w)
				w.restart()
			}
			w.iterate(25)
			require.EqualValues(t, 675, target())
		})
	}
}
