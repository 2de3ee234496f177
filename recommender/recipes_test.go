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

func asking(text string) *vpav1.VerticalPodAutoscaler {
	v := aVPA("web", "web", time.Hour)
	if text != "" {
		v.Annotations = map[string]string{recipe.Annotation: text}
	}
	return v
}

func (w *world) ask(text string) {
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

func (w *world) life(from, to int) {
	w.t.Helper()
	for m := from; m < to; m++ {
		cpu, mib := usageAt(m)
		w.uses("web-1", "a", cpu, mib)
		w.passes(1)
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

func begun(t *testing.T, text string) *world {
	w := newWorld(t, deployment("web"), limited("750m"), asking(text))
	w.config.Output.Tolerance = 0 // compare bounds in each iteration
	return w.begin()
}

func limited(cpu string) *corev1.Pod {
	p := aPod("web-1", "web", "a")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("300m")
	return p
}

// Backtests predict the cluster only if the recommendations are identical for the same samples.
func TestTheBacktesterRecommendsWhatTheRecommenderDoes(t *testing.T) {
	for _, name := range append(recipe.Names(), "loadline:cpu=shared") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begun(t, name)
			made, err := recipe.Parse(name)
			require.NoError(t, err)
			replayed := replay.NewSimulatedRecommender(w.config.Aggregation.Store(), &made, start())
			current := resources.Of(300, 256<<20)
			for m := range 60 * 5 {
				cpu, mib := usageAt(m + 600)
				w.uses("web-1", "a", cpu, mib)
				w.passes(1)
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
func TestTheBacktesterRecommendsTheSameUnderEveryMemoryLimit(t *testing.T) {
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
		pod, vpa := limited("750m"), asking("loadline")
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
		w.begin()
		made, err := recipe.Parse("loadline")
		require.NoError(t, err)
		replayed := replay.NewSimulatedRecommender(w.config.Aggregation.Store(), &made, start())
		replayed.Declare(c.declared[0], c.declared[1])
		for m := range 40 {
			cpu, mib := usageAt(m + 600)
			w.uses("web-1", "a", cpu, mib)
			w.passes(1)
			replayed.Observe(w.now, resources.CPU, cpu, 750)
			replayed.Observe(w.now, resources.Memory, mib<<20, 0)
			got, want := convert.Bounds(w.recommendations("web")[0]), replayed.Advise(w.now, resources.Of(300, 256<<20))
			require.Equal(t, want, got, "%s, minute %d: from the first pass on", c.name, m)
		}
		sizes[c.name] = w.memory("web")
	}
	require.Greater(t, sizes["equal"], sizes["narrow"])
	require.Greater(t, sizes["narrow"], sizes["none"])
	require.Equal(t, sizes["none"], sizes["twice"])
	require.Equal(t, sizes["none"], sizes["stands still"])
}

func TestANewContainerKeepsItsRequestForAnHour(t *testing.T) {
	w := begun(t, "loadline")
	made, err := recipe.Parse("loadline:pod-min-memory=0")
	require.NoError(t, err)
	replayed := replay.NewSimulatedRecommender(w.config.Aggregation.Store(), &made, start())
	replayed.Declare(256<<20, 0)
	w.config.Estimate.PodMinMemory = 0
	w.kill()
	for m := range 65 {
		w.uses("web-1", "a", 300, 100)
		w.passes(1)
		if m == 30 {
			w.loop.Close(t.Context(), w.now)
			w.kill()
		}
		replayed.Observe(w.now, resources.CPU, 300, 750)
		replayed.Observe(w.now, resources.Memory, 100<<20, 0)
		want := replayed.Advise(w.now, resources.Of(300, 256<<20)).Target.Value(resources.Memory)
		require.Equal(t, int64(want), w.memory("web"), "minute %d", m)
		require.Equal(t, m < 60, w.memory("web") >= 256<<20, "minute %d", m)
	}
}

// A workload may be scaled to zero, and a job has no pods between runs.
func TestTheLimitIsKnownAfterARestartWithoutPods(t *testing.T) {
	pod := limited("750m")
	pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("256Mi")
	w := newWorld(t, deployment("web"), pod, asking("loadline"))
	w.config.Output.Tolerance = 0
	w.begin().life(600, 660)
	v := w.loop.Model.Find("ns", "web")
	require.Equal(t, sketch.LimitRatio(100), v.Sketches["a"].LimitRatio)
	before := w.recommendations("web")[0]
	require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	clear(w.use)
	require.Eventually(t, func() bool { w.passes(1); return v.Pods() == 0 }, time.Minute, time.Millisecond)
	require.Equal(t, convert.Bounds(before), convert.Bounds(w.recommendations("web")[0]))
	w.loop.Close(t.Context(), w.now)
	w.kill()
	w.passes(3)
	require.Equal(t, convert.Bounds(before), convert.Bounds(w.recommendations("web")[0]))
	require.Equal(t, sketch.LimitRatio(100), w.loop.Model.Find("ns", "web").Sketches["a"].LimitRatio)
}

// During a rollout the margin changes once: at the start for a tighter limit, at the end for a
// wider one.
func TestPodsThatDisagreeGetTheMarginOfTheTightest(t *testing.T) {
	w := begun(t, "loadline")
	w.uses("web-1", "a", 300, 600)
	w.passes(2)
	v := w.loop.Model.Find("ns", "web")
	require.Equal(t, sketch.Free, v.Sketches["a"].LimitRatio)
	wide := w.memory("web")
	next := aPod("web-2", "web", "a")
	next.Labels["pod-template-hash"] = "2"
	next.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	w.create(next)
	w.uses("web-2", "a", 300, 600)
	require.Eventually(t, func() bool { w.passes(1); return v.Pods() == 2 }, time.Minute, time.Millisecond)
	tight := w.memory("web")
	require.Greater(t, float64(tight), 1.03*float64(wide))
	for range 5 {
		w.passes(1)
		require.LessOrEqual(t, w.memory("web"), tight, "only a new container's margin shrinks")
		require.Greater(t, float64(w.memory("web")), 0.99*float64(tight))
	}
	require.Equal(t, sketch.LimitRatio(100), v.Sketches["a"].LimitRatio)
	require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "web-2", metav1.DeleteOptions{}))
	delete(w.use, usage.ContainerKey{Namespace: "ns", Pod: "web-2", Container: "a"})
	require.Eventually(t, func() bool { w.passes(1); return v.Pods() == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, sketch.Free, v.Sketches["a"].LimitRatio)
	require.Less(t, float64(w.memory("web")), 0.98*float64(tight))
}

func TestTheBacktesterRecommendsTheSameAfterAKill(t *testing.T) {
	for _, name := range []string{"vpa", "loadline", "crane", "cruisekube"} {
		w := begun(t, name)
		made, err := recipe.Parse(name)
		require.NoError(t, err)
		replayed := replay.NewSimulatedRecommender(w.config.Aggregation.Store(), &made, start())
		both := func(kills float64) {
			w.uses("web-1", "a", 300, 200)
			require.Eventually(t, func() bool {
				w.passes(1)
				replayed.Observe(w.now, resources.CPU, 300, 0)
				replayed.Observe(w.now, resources.Memory, 200<<20, 0)
				return testutil.ToFloat64(w.metrics.ooms.WithLabelValues("taken")) == kills
			}, time.Minute, time.Millisecond)
		}
		both(0)
		at := w.now
		w.restarted("2", "c1", "1Gi", at)
		both(1)
		replayed.Killed(at, 256<<20, 0) // the request at the kill
		got := convert.Bounds(w.recommendations("web")[0])
		require.Equal(t, replayed.Advise(w.now, resources.Of(0, 256<<20)).Target.Value(resources.Memory), got.Target.Value(resources.Memory), name)
		require.GreaterOrEqual(t, got.Target.Value(resources.Memory), resources.Amount(256<<20), name)
	}
}

func TestARestartLosesNothingOfWhatARecipeKnows(t *testing.T) {
	for _, name := range append(recipe.Names()[1:], "loadline:cpu=shared") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, undisturbed := begun(t, name), begun(t, name)
			w.life(600, 900)
			undisturbed.life(600, 900)
			w.loop.Close(t.Context(), w.now)
			before := w.recommendations("web")
			w.kill()
			w.life(900, 960)
			undisturbed.life(900, 960)
			require.Equal(t, undisturbed.recommendations("web")[0].UncappedTarget, w.recommendations("web")[0].UncappedTarget)
			require.Equal(t, undisturbed.loop.Model.Find("ns", "web").Sketches["a"].Image(), w.loop.Model.Find("ns", "web").Sketches["a"].Image())
			require.NotEmpty(t, before)
		})
	}
}

func TestAKillBetweenSavesLowersNoTarget(t *testing.T) {
	w := begun(t, "loadline")
	w.life(600, 700)
	w.life(700, 701) // the spike
	before := w.recommendations("web")[0]
	w.kill()
	w.life(701, 706)
	after := w.recommendations("web")[0]
	require.GreaterOrEqual(t, float64(after.UncappedTarget.Memory().Value()), 0.97*float64(before.UncappedTarget.Memory().Value()),
		"the spike was saved before its target was published; a new container's margin shrinks by itself")
	require.InEpsilon(t, before.UncappedTarget.Cpu().MilliValue(), after.UncappedTarget.Cpu().MilliValue(), 0.08)
}

func TestRolloutsAddNoSketches(t *testing.T) {
	w := begun(t, "loadline")
	w.life(600, 660)
	before := w.memory("web")
	for i := range 5 {
		name := "web-" + string(rune('b'+i))
		p := aPod(name, "web", "a")
		p.Labels["pod-template-hash"] = name
		w.create(p)
		for pod := range w.use {
			require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), pod.Pod, metav1.DeleteOptions{}))
		}
		clear(w.use)
		w.uses(name, "a", 300, 600)
		require.Eventually(t, func() bool {
			w.passes(1)
			v := w.loop.Model.Find("ns", "web")
			return v.Pods() == 1
		}, time.Minute, time.Millisecond)
	}
	sketches := w.loop.Model.Find("ns", "web").Sketches
	require.Len(t, sketches, 1)
	require.InEpsilon(t, before, w.memory("web"), 0.1)
	require.LessOrEqual(t, len(sketches["a"].Image()), 1024)
}

func TestTheAnnotationBackAndForth(t *testing.T) {
	w := begun(t, "")
	w.life(600, 660)
	require.Nil(t, w.loop.Model.Find("ns", "web").Sketches, "the recipe of the reference keeps nothing")
	require.NotContains(t, w.checkpoint("web-a").Annotations[checkpoint.OpenWindows], "trail")
	reference := w.memory("web")

	w.ask("loadline:memory=safe")
	w.life(660, 800)
	v := w.loop.Model.Find("ns", "web")
	require.Len(t, v.Sketches, 1)
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.recipes.WithLabelValues("loadline", "annotation")))
	image := v.Sketches["a"].Image()

	w.ask("")
	w.life(800, 860)
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.recipes.WithLabelValues("vpa", "flag")))
	require.GreaterOrEqual(t, w.memory("web"), reference, "its own history went on")
	require.NotEqual(t, image, v.Sketches["a"].Image(), "somebody may only be trying: what the other knows goes on for a day")

	w.ask("loadline")
	w.life(860, 870)
	covered, _ := w.loop.Model.Find("ns", "web").Sketches["a"].Covers(resources.Memory)
	require.Equal(t, 209*time.Minute, covered, "from the first change on")

	w.ask("vpa")
	w.life(870, 870+24*60+2)
	require.Nil(t, w.loop.Model.Find("ns", "web").Sketches)
}

func TestANewRecipeLowersNothingBeforeItHasSeenADay(t *testing.T) {
	w := begun(t, "")
	w.uses("web-1", "a", 300, 2000)
	w.passes(60 * 3)
	w.uses("web-1", "a", 300, 200)
	w.passes(60 * 22)
	before := w.memory("web")
	require.Greater(t, before, int64(2000<<20))
	w.ask("loadline")
	w.passes(30)
	require.Equal(t, before, w.memory("web"))
	held, message := w.condition("web", status.TargetHeld)
	require.Equal(t, corev1.ConditionTrue, held)
	require.Contains(t, message, "memory of container a")
	enough, message := w.condition("web", status.SufficientHistory)
	require.Equal(t, corev1.ConditionTrue, enough, "the held target rests on the history of the former recipe")
	require.Contains(t, message, "at least 1 day")
	w.passes(24 * 60)
	require.Less(t, w.memory("web"), before/2)
	held, _ = w.condition("web", status.TargetHeld)
	require.Empty(t, held)
}
