package recommender

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/status"
)

func webVPA(text string) *vpav1.VerticalPodAutoscaler {
	v := aVPA("web", "web", time.Hour)
	if text != "" {
		v.Annotations = map[string]string{recipe.Annotation: text}
	}
	return v
}

func (w *world) setRecipe(text string) {
	w.t.Helper()
	var value *string
	if text != "" {
		value = &text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{recipe.Annotation: value}}})
	require.NoError(w.t, err)
	_, err = w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Patch(w.t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		cached, err := w.loop.Roster.VPAs.VerticalPodAutoscalers("ns").Get("web")
		return err == nil && cached.Annotations[recipe.Annotation] == text
	}, time.Minute, time.Millisecond)
}

func (w *world) simulateUsage(from, to int) {
	w.t.Helper()
	for m := from; m < to; m++ {
		cpu, mib := usageAt(m)
		w.setUsage("web-1", "a", cpu, mib)
		w.iterate(1)
	}
}

// usageAt returns bursty CPU, and periodic memory with one spike.
func usageAt(m int) (cpu, mib resources.Amount) {
	cpu = 200 + resources.Amount(m*7919%300)
	if m%97 < 5 {
		cpu *= 4
	}
	mib = 600 + resources.Amount(100*math.Sin(float64(m)/200)) + resources.Amount(m*104729%50)
	if m == 700 {
		mib = 1400
	}
	return cpu, mib
}

func startedWorld(t *testing.T, text string) *world {
	w := newWorld(t, deployment("web"), podWithCPULimit("750m"), webVPA(text))
	w.config.Output.Tolerance = 0 // compare bounds in each iteration
	return w.start()
}

func podWithCPULimit(cpu string) *corev1.Pod {
	p := aPod("web-1", "web", "a")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("300m")
	return p
}

// Backtests predict the cluster only if the recommendations are identical for the same samples.
func TestBacktester_MatchesRecommender(t *testing.T) {
	for _, name := range append(recipe.Names(), "loadline:cpu=shared") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startedWorld(t, name)
			made, err := recipe.Parse(name)
			require.NoError(t, err)
			replayed := replay.NewSimulatedRecommender(w.config.Aggregation.Store(), &made, start())
			current := resources.NewList(300, 256<<20)
			for m := range 60 * 5 {
				cpu, mib := usageAt(m + 600)
				w.setUsage("web-1", "a", cpu, mib)
				w.iterate(1)
				replayed.Observe(w.now, resources.CPU, cpu, 750)
				replayed.Observe(w.now, resources.Memory, mib<<20, 0)
				want := replayed.Advise(w.now, current)
				published := w.recommendations("web")
				if want.Target.Empty() {
					require.Empty(t, published, "minute %d", m)
					continue
				}
				got := convert.Bounds(published[0])
				require.Equal(t, want.Target, got.Target, "minute %d", m)
				require.Equal(t, want.Lower, got.Lower, "minute %d", m)
				require.Equal(t, want.Upper, got.Upper, "minute %d", m)
			}
		})
	}
}

// The memory margin depends on the ratio of limit to request, not on the current request, because
// the updater scales the limit with it.
func TestBacktester_MatchesWithMemoryLimits(t *testing.T) {
	only, sizes := vpav1.ContainerControlledValuesRequestsOnly, map[string]int64{}
	for _, c := range []struct {
		name, request, limit string
		declared             [2]resources.Amount // request and limit for the backtester, 0 = none
		controlled           *vpav1.ContainerControlledValues
	}{
		{name: "none", request: "256Mi", declared: [2]resources.Amount{256 << 20, 0}},
		{name: "equal", request: "256Mi", limit: "256Mi", declared: [2]resources.Amount{1000, 1000}},
		{name: "narrow", request: "104857601", limit: "115343361", declared: [2]resources.Amount{100 << 20, 110 << 20}},
		{name: "twice", request: "256Mi", limit: "512Mi", declared: [2]resources.Amount{256 << 20, 512 << 20}},
		{name: "stands still", request: "256Mi", limit: "256Mi", declared: [2]resources.Amount{256 << 20, 0}, controlled: &only},
	} {
		pod, vpa := podWithCPULimit("750m"), webVPA("loadline")
		r := &pod.Spec.Containers[0].Resources
		r.Requests[corev1.ResourceMemory] = resource.MustParse(c.request)
		if c.limit != "" {
			r.Limits[corev1.ResourceMemory] = resource.MustParse(c.limit)
		}
		if c.controlled != nil {
			vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "a", ControlledValues: c.controlled}}}
		}
		w := newWorld(t, deployment("web"), pod, vpa)
		w.config.Output.Tolerance = 0
		w.start()
		made, err := recipe.Parse("loadline")
		require.NoError(t, err)
		replayed := replay.NewSimulatedRecommender(w.config.Aggregation.Store(), &made, start())
		replayed.Declare(c.declared[0], c.declared[1])
		for m := range 40 {
			cpu, mib := usageAt(m + 600)
			w.setUsage("web-1", "a", cpu, mib)
			w.iterate(1)
			replayed.Observe(w.now, resources.CPU, cpu, 750)
			replayed.Observe(w.now, resources.Memory, mib<<20, 0)
			got, want := convert.Bounds(w.recommendations("web")[0]), replayed.Advise(w.now, resources.NewList(300, 256<<20))
			require.Equal(t, want, got, "%s, minute %d: from the first pass on", c.name, m)
		}
		sizes[c.name] = w.memory("web")
	}
	require.Greater(t, sizes["equal"], sizes["narrow"])
	require.Greater(t, sizes["narrow"], sizes["none"])
	require.Equal(t, sizes["none"], sizes["twice"])
	require.Equal(t, sizes["none"], sizes["stands still"])
}

func TestNewContainer_KeepsRequestForAnHour(t *testing.T) {
	w := startedWorld(t, "loadline")
	made, err := recipe.Parse("loadline:pod-min-memory=0")
	require.NoError(t, err)
	replayed := replay.NewSimulatedRecommender(w.config.Aggregation.Store(), &made, start())
	replayed.Declare(256<<20, 0)
	w.config.Estimate.PodMinMemory = 0
	w.restart()
	for m := range 65 {
		w.setUsage("web-1", "a", 300, 100)
		w.iterate(1)
		if m == 30 {
			w.loop.Close(t.Context(), w.now)
			w.restart()
		}
		replayed.Observe(w.now, resources.CPU, 300, 750)
		replayed.Observe(w.now, resources.Memory, 100<<20, 0)
		want := replayed.Advise(w.now, resources.NewList(300, 256<<20)).Target.Value(resources.Memory)
		require.Equal(t, int64(want), w.memory("web"), "minute %d", m)
		require.Equal(t, m < 60, w.memory("web") >= 256<<20, "minute %d", m)
	}
}

// A workload may be scaled to zero, and a job has no pods between runs.
func TestLimitRatio_SurvivesRestartWithoutPods(t *testing.T) {
	pod := podWithCPULimit("750m")
	pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("256Mi")
	w := newWorld(t, deployment("web"), pod, webVPA("loadline"))
	w.config.Output.Tolerance = 0
	w.start().simulateUsage(600, 660)
	v := w.loop.Model.Find("ns", "web")
	require.Equal(t, sketch.LimitRatio(100), v.Sketches["a"].LimitRatio)
	before := w.recommendations("web")[0]
	require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	clear(w.usage)
	require.Eventually(t, func() bool { w.iterate(1); return v.Pods() == 0 }, time.Minute, time.Millisecond)
	require.Equal(t, convert.Bounds(before), convert.Bounds(w.recommendations("web")[0]))
	w.loop.Close(t.Context(), w.now)
	w.restart()
	w.iterate(3)
	require.Equal(t, convert.Bounds(before), convert.Bounds(w.recommendations("web")[0]))
	require.Equal(t, sketch.LimitRatio(100), w.loop.Model.Find("ns", "web").Sketches["a"].LimitRatio)
}

// During a rollout the margin changes once: at the start for a tighter limit, at the end for a
// wider one.
func TestLimitRatio_UsesTightestPod(t *testing.T) {
	w := startedWorld(t, "loadline")
	w.setUsage("web-1", "a", 300, 600)
	w.iterate(2)
	v := w.loop.Model.Find("ns", "web")
	require.Equal(t, sketch.NoLimitRatio, v.Sketches["a"].LimitRatio)
	wide := w.memory("web")
	next := aPod("web-2", "web", "a")
	next.Labels["pod-template-hash"] = "2"
	next.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	w.create(next)
	w.setUsage("web-2", "a", 300, 600)
	require.Eventually(t, func() bool { w.iterate(1); return v.Pods() == 2 }, time.Minute, time.Millisecond)
	tight := w.memory("web")
	require.Greater(t, float64(tight), 1.03*float64(wide))
	for range 5 {
		w.iterate(1)
		require.LessOrEqual(t, w.memory("web"), tight, "only a new container's margin shrinks")
		require.Greater(t, float64(w.memory("web")), 0.99*float64(tight))
	}
	require.Equal(t, sketch.LimitRatio(100), v.Sketches["a"].LimitRatio)
	require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "web-2", metav1.DeleteOptions{}))
	delete(w.usage, usage.ContainerKey{Namespace: "ns", Pod: "web-2", Container: "a"})
	require.Eventually(t, func() bool { w.iterate(1); return v.Pods() == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, sketch.NoLimitRatio, v.Sketches["a"].LimitRatio)
	require.Less(t, float64(w.memory("web")), 0.98*float64(tight))
}

func TestBacktester_MatchesAfterKill(t *testing.T) {
	for _, name := range []string{"vpa", "loadline", "crane", "cruisekube"} {
		w := startedWorld(t, name)
		made, err := recipe.Parse(name)
		require.NoError(t, err)
		replayed := replay.NewSimulatedRecommender(w.config.Aggregation.Store(), &made, start())
		both := func(kills float64) {
			w.setUsage("web-1", "a", 300, 200)
			require.Eventually(t, func() bool {
				w.iterate(1)
				replayed.Observe(w.now, resources.CPU, 300, 0)
				replayed.Observe(w.now, resources.Memory, 200<<20, 0)
				return testutil.ToFloat64(w.metrics.ooms.WithLabelValues("accepted")) == kills
			}, time.Minute, time.Millisecond)
		}
		both(0)
		at := w.now
		w.setOOMKilled("2", "c1", "1Gi", at)
		both(1)
		replayed.Killed(at, 256<<20, 0) // the request at the kill
		got := convert.Bounds(w.recommendations("web")[0])
		require.Equal(t, replayed.Advise(w.now, resources.NewList(0, 256<<20)).Target.Value(resources.Memory), got.Target.Value(resources.Memory), name)
		require.GreaterOrEqual(t, got.Target.Value(resources.Memory), resources.Amount(256<<20), name)
	}
}

func TestRestart_KeepsSketches(t *testing.T) {
	for _, name := range append(recipe.Names()[1:], "loadline:cpu=shared") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, undisturbed := startedWorld(t, name), startedWorld(t, name)
			w.simulateUsage(600, 900)
			undisturbed.simulateUsage(600, 900)
			w.loop.Close(t.Context(), w.now)
			before := w.recommendations("web")
			w.restart()
			w.simulateUsage(900, 960)
			undisturbed.simulateUsage(900, 960)
			require.Equal(t, undisturbed.recommendations("web")[0].UncappedTarget, w.recommendations("web")[0].UncappedTarget)
			require.Equal(t, undisturbed.loop.Model.Find("ns", "web").Sketches["a"].Image(), w.loop.Model.Find("ns", "web").Sketches["a"].Image())
			require.NotEmpty(t, before)
		})
	}
}

func TestCrash_DoesNotLowerTarget(t *testing.T) {
	w := startedWorld(t, "loadline")
	w.simulateUsage(600, 700)
	w.simulateUsage(700, 701) // the spike
	before := w.recommendations("web")[0]
	w.restart()
	w.simulateUsage(701, 706)
	after := w.recommendations("web")[0]
	require.GreaterOrEqual(t, float64(after.UncappedTarget.Memory().Value()), 0.97*float64(before.UncappedTarget.Memory().Value()),
		"the spike was saved before its target was published; a new container's margin shrinks by itself")
	require.InEpsilon(t, before.UncappedTarget.Cpu().MilliValue(), after.UncappedTarget.Cpu().MilliValue(), 0.08)
}

func TestRollout_AddsNoSketches(t *testing.T) {
	w := startedWorld(t, "loadline")
	w.simulateUsage(600, 660)
	before := w.memory("web")
	for i := range 5 {
		name := "web-" + string(rune('b'+i))
		p := aPod(name, "web", "a")
		p.Labels["pod-template-hash"] = name
		w.create(p)
		for pod := range w.usage {
			require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), pod.Pod, metav1.DeleteOptions{}))
		}
		clear(w.usage)
		w.setUsage(name, "a", 300, 600)
		require.Eventually(t, func() bool {
			w.iterate(1)
			v := w.loop.Model.Find("ns", "web")
			return v.Pods() == 1
		}, time.Minute, time.Millisecond)
	}
	sketches := w.loop.Model.Find("ns", "web").Sketches
	require.Len(t, sketches, 1)
	require.InEpsilon(t, before, w.memory("web"), 0.1)
	require.LessOrEqual(t, len(sketches["a"].Image()), 1024)
}

func TestRecipeAnnotation_SwitchesBackAndForth(t *testing.T) {
	w := startedWorld(t, "")
	w.simulateUsage(600, 660)
	require.Nil(t, w.loop.Model.Find("ns", "web").Sketches, "the recipe of the reference keeps nothing")
	require.NotContains(t, w.checkpoint("web-a").Annotations[checkpoint.OpenWindows], "trail")
	reference := w.memory("web")

	w.setRecipe("loadline:memory=safe")
	w.simulateUsage(660, 800)
	v := w.loop.Model.Find("ns", "web")
	require.Len(t, v.Sketches, 1)
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.recipes.WithLabelValues("loadline", "annotation")))
	image := v.Sketches["a"].Image()

	w.setRecipe("")
	w.simulateUsage(800, 860)
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.recipes.WithLabelValues("vpa", "flag")))
	require.GreaterOrEqual(t, w.memory("web"), reference, "its own history went on")
	require.NotEqual(t, image, v.Sketches["a"].Image(), "somebody may only be trying: what the other knows goes on for a day")

	w.setRecipe("loadline")
	w.simulateUsage(860, 870)
	covered, _ := w.loop.Model.Find("ns", "web").Sketches["a"].Coverage(resources.Memory)
	require.Equal(t, 209*time.Minute, covered, "from the first change on")

	w.setRecipe("vpa")
	w.simulateUsage(870, 870+24*60+2)
	require.Nil(t, w.loop.Model.Find("ns", "web").Sketches)
}

func TestNewRecipe_HoldsTargetForADay(t *testing.T) {
	w := startedWorld(t, "")
	w.setUsage("web-1", "a", 300, 2000)
	w.iterate(60 * 3)
	w.setUsage("web-1", "a", 300, 200)
	w.iterate(60 * 22)
	before := w.memory("web")
	require.Greater(t, before, int64(2000<<20))
	w.setRecipe("loadline")
	w.iterate(30)
	require.Equal(t, before, w.memory("web"))
	held, message := w.condition("web", status.TargetHeld)
	require.Equal(t, corev1.ConditionTrue, held)
	require.Contains(t, message, "memory of container a")
	enough, message := w.condition("web", status.SufficientHistory)
	require.Equal(t, corev1.ConditionTrue, enough, "the held target rests on the history of the former recipe")
	require.Contains(t, message, "at least 1 day")
	w.iterate(24 * 60)
	require.Less(t, w.memory("web"), before/2)
	held, _ = w.condition("web", status.TargetHeld)
	require.Empty(t, held)
}
