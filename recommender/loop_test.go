package recommender

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

const provided = vpav1.RecommendationProvided

func TestRunOnce_PublishesRecommendation(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "b", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 700, 600)
	w.setUsage("web-1", "b", 5, 20)
	w.iterate(31)

	list := w.recommendations("web")
	require.Len(t, list, 2)
	require.Equal(t, "a", list[0].ContainerName)
	require.Equal(t, "b", list[1].ContainerName)
	require.Equal(t, "12m", list[1].Target.Cpu().String())
	require.Equal(t, "125Mi", list[1].Target.Memory().String())
	for _, c := range list {
		for _, quantities := range []corev1.ResourceList{c.Target, c.LowerBound, c.UpperBound, c.UncappedTarget} {
			require.Len(t, quantities, 2)
		}
	}
	require.Positive(t, list[0].Target.Cpu().MilliValue()-700)
	state, _ := w.condition("web", provided)
	require.Equal(t, corev1.ConditionTrue, state)
	require.EqualValues(t, 7, w.vpa("web").Status.ObservedGeneration)
	none, _ := w.condition("web", vpav1.NoPodsMatched)
	require.Empty(t, none)
}

func TestRunOnce_SkipsUnchangedStatus(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.iterate(1)
	w.vpas.ClearActions()
	w.iterate(3)
	for _, action := range w.vpas.Actions() {
		require.NotEqual(t, "patch", action.GetVerb(), "nothing was measured, so nothing is new")
	}
}

func TestRestart_KeepsRecommendation(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 700, 600)
	w.iterate(60 * 26) // the peak of the first memory window is saved
	before := w.recommendations("web")
	require.Len(t, before, 1)

	w.start()
	w.sourceErr = errors.New("no metrics yet")
	w.iterate(2)
	after := w.recommendations("web")
	require.Equal(t, before[0].Target.Cpu().MilliValue(), after[0].Target.Cpu().MilliValue())
	require.Equal(t, before[0].Target.Memory().Value(), after[0].Target.Memory().Value())
	state, _ := w.condition("web", provided)
	require.Equal(t, corev1.ConditionTrue, state)
}

func TestRestart_KeepsMemoryOfFirstWindow(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 700, 600)
	w.iterate(5)
	before := w.recommendations("web")[0]
	require.Empty(t, w.checkpoint("web-a").Status.MemoryHistogram.BucketWeights, "the running window is not in the checkpoint")

	w.start()
	w.sourceErr = errors.New("no metrics yet")
	w.iterate(3)
	after := w.recommendations("web")[0]
	require.Equal(t, before.Target.Memory().Value(), after.Target.Memory().Value())
	require.Equal(t, before.UncappedTarget.Memory().Value(), after.UncappedTarget.Memory().Value())
	require.Equal(t, before.Target.Cpu().MilliValue(), after.Target.Cpu().MilliValue())

	w.sourceErr = nil
	w.iterate(2)
	require.Equal(t, before.Target.Memory().Value(), w.recommendations("web")[0].Target.Memory().Value())
}

func TestRestart_KeepsRecommendationOfMissingTarget(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 700, 600)
	w.iterate(5)
	before := w.recommendations("web")
	require.NoError(t, w.kube.AppsV1().Deployments("ns").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.start()
	w.iterate(3)
	require.Equal(t, before, w.recommendations("web"))
	w.iterate(31)
	require.Empty(t, w.recommendations("web"), "although history is left")
}

func TestRestart_KeepsTargetWithoutHistory(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 700, 600)
	w.iterate(5)
	before := w.recommendations("web")
	require.NoError(t, w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Delete(t.Context(), "web-a", metav1.DeleteOptions{}))

	w.start()
	w.sourceErr = errors.New("metrics API is down")
	w.iterate(3)
	require.Equal(t, before[0].Target.Cpu().MilliValue(), w.recommendations("web")[0].Target.Cpu().MilliValue())
}

func TestRunOnce_NoRecommendationWithoutSamples(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.iterate(2)
	require.Empty(t, w.recommendations("web"))
	state, _ := w.condition("web", provided)
	require.Equal(t, corev1.ConditionFalse, state)
}

func TestMetricsOutage_CountsErrorsAndKeepsTargets(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 400)
	w.iterate(2)
	before := w.recommendations("web")
	w.sourceErr = errors.New("no endpoints")
	w.iterate(3)
	require.Equal(t, before, w.recommendations("web"))
	require.Equal(t, 3.0, testutil.ToFloat64(w.metrics.responses.WithLabelValues("true", "default-metrics-client")))
	require.Equal(t, 2.0, testutil.ToFloat64(w.metrics.responses.WithLabelValues("false", "default-metrics-client")))
}

func TestRunOnce_ReportsInvalidTargets(t *testing.T) {
	without := aVPA("without", "x", time.Hour)
	without.Spec.TargetRef = nil
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"),
		aVPA("web", "web", time.Hour), aVPA("gone", "nowhere", time.Hour), without, aVPA("unreadable", "x", time.Hour)).start()
	w.loop.Roster.VPAs = &unreadableLister{w.loop.Roster.VPAs, "unreadable", "spec.x: quantity"}
	w.setUsage("web-1", "a", 300, 400)
	w.iterate(2)

	require.Len(t, w.recommendations("web"), 1)
	state, message := w.condition("gone", vpav1.ConfigUnsupported)
	require.Equal(t, corev1.ConditionTrue, state)
	require.Equal(t, "Deployment nowhere does not exist in namespace ns", message)
	_, message = w.condition("without", vpav1.ConfigUnsupported)
	require.Contains(t, message, "spec.targetRef is incomplete")
	_, message = w.condition("unreadable", vpav1.ConfigUnsupported)
	require.Equal(t, "spec.x: quantity", message)
	for _, name := range []string{"gone", "without"} {
		state, _ = w.condition(name, provided)
		require.Equal(t, corev1.ConditionFalse, state)
		state, _ = w.condition(name, vpav1.NoPodsMatched)
		require.Equal(t, corev1.ConditionTrue, state)
	}
}

func TestMissingTarget_KeepsRecommendationTemporarily(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 400)
	w.iterate(3)
	require.NoError(t, w.kube.AppsV1().Deployments("ns").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := w.loop.Roster.Targets.Resolve(t.Context(), "ns", w.vpa("web").Spec.TargetRef)
		return err != nil
	}, time.Minute, time.Millisecond)
	w.iterate(2)
	state, _ := w.condition("web", vpav1.ConfigUnsupported)
	require.Equal(t, corev1.ConditionTrue, state)
	require.Len(t, w.recommendations("web"), 1, "published values stay for a while")
	state, _ = w.condition("web", provided)
	require.Equal(t, corev1.ConditionTrue, state)

	samples := w.checkpoint("web-a").Status.TotalSamplesCount
	w.iterate(40)
	require.Empty(t, w.recommendations("web"), "but not for ever")
	require.GreaterOrEqual(t, w.checkpoint("web-a").Status.TotalSamplesCount, samples, "and the history is never overwritten with less")

	w.create(deployment("web"))
	require.Eventually(t, func() bool {
		_, err := w.loop.Roster.Targets.Resolve(t.Context(), "ns", w.vpa("web").Spec.TargetRef)
		return err == nil
	}, time.Minute, time.Millisecond)
	w.iterate(1)
	require.Len(t, w.recommendations("web"), 1)
	state, _ = w.condition("web", vpav1.ConfigUnsupported)
	require.Empty(t, state)
}

func (w *world) checkpoint(name string) *vpav1.VerticalPodAutoscalerCheckpoint {
	w.t.Helper()
	c, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return c
}

func TestTargetConflict_OlderVPAControls(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"),
		aVPA("a-younger", "web", time.Hour), aVPA("older", "web", 2*time.Hour)).start()
	w.setUsage("web-1", "a", 300, 400)
	w.iterate(2)
	state, message := w.condition("a-younger", "TargetConflict")
	require.Equal(t, corev1.ConditionTrue, state)
	require.Contains(t, message, "VPA older selects the same pods and controls them because it is older")
	state, _ = w.condition("older", "TargetConflict")
	require.Empty(t, state)
	require.Equal(t, w.recommendations("older"), w.recommendations("a-younger"))

	require.NoError(t, w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Delete(t.Context(), "older", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := w.loop.Roster.VPAs.VerticalPodAutoscalers("ns").Get("older")
		return err != nil
	}, time.Minute, time.Millisecond)
	w.iterate(1)
	state, _ = w.condition("a-younger", "TargetConflict")
	require.Empty(t, state)
}

func TestOOMKill_RaisesRecommendation(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 200)
	w.iterate(2)
	before := w.recommendations("web")[0].Target.Memory().Value()

	killed := aPod("web-1", "web", "a")
	killed.ResourceVersion = "2"
	killed.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.NewTime(w.now)}}
	_, err := w.kube.CoreV1().Pods("ns").Update(t.Context(), killed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		w.iterate(1)
		return w.recommendations("web")[0].Target.Memory().Value() > before
	}, time.Minute, time.Millisecond)
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.ooms.WithLabelValues("accepted")))
}

func TestHandleOOMs_PublishesAndSavesKill(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour),
		deployment("other"), aPod("other-1", "other", "a"), aVPA("other", "other", time.Hour)).start()
	w.loop.HandleOOMs(t.Context(), w.now)
	w.setUsage("web-1", "a", 300, 200)
	w.setUsage("other-1", "a", 300, 200)
	w.iterate(2)
	before := w.memory("web")
	w.iterate(1) // the caches contain the written objects

	killed := aPod("web-1", "web", "a")
	killed.ResourceVersion = "2"
	killed.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.NewTime(w.now), ContainerID: "c1"}}
	_, err := w.kube.CoreV1().Pods("ns").Update(t.Context(), killed, metav1.UpdateOptions{})
	require.NoError(t, err)
	select {
	case <-w.loop.Ingester.OOMs.Wake():
	case <-time.After(5 * time.Second):
		t.Fatal("the kill wakes nobody")
	}
	w.vpas.ClearActions()
	w.loop.HandleOOMs(t.Context(), w.now.Add(2*time.Second))
	require.Greater(t, w.memory("web"), before)
	require.Equal(t, []string{"patch verticalpodautoscalercheckpoints", "patch verticalpodautoscalers"}, slices.Compact(w.writes()))

	after := w.memory("web")
	w.start()
	w.iterate(2)
	require.Equal(t, after, w.memory("web"))
}

// The kill happens before the first iteration that reads the VPA.
func TestHandleOOMs_ServesVPAsCreatedSinceTheLastIteration(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a")).start()
	w.iterate(1)
	vpa := aVPA("web", "web", time.Hour)
	_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Create(t.Context(), vpa, metav1.CreateOptions{})
	require.NoError(t, err)
	killed := aPod("web-1", "web", "a")
	killed.ResourceVersion = "2"
	killed.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.NewTime(w.now), ContainerID: "c1"}}
	_, err = w.kube.CoreV1().Pods("ns").Update(t.Context(), killed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.loop.Roster.HasUnknown(w.loop.Model) }, 5*time.Second, time.Millisecond)
	select {
	case <-w.loop.Ingester.OOMs.Wake():
	case <-time.After(5 * time.Second):
		t.Fatal("the kill does not wake the loop")
	}
	w.loop.HandleOOMs(t.Context(), w.now.Add(2*time.Second))
	require.Positive(t, w.memory("web"))
}

// The first iteration starts one interval after program start.
func TestHandleOOMs_RunsBeforeFirstIteration(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	killed := aPod("web-1", "web", "a")
	killed.ResourceVersion = "2"
	killed.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.NewTime(w.now), ContainerID: "c1"}}
	_, err := w.kube.CoreV1().Pods("ns").Update(t.Context(), killed, metav1.UpdateOptions{})
	require.NoError(t, err)
	select {
	case <-w.loop.Ingester.OOMs.Wake():
	case <-time.After(time.Minute):
		t.Fatal("the kill does not wake the loop")
	}
	w.loop.HandleOOMs(t.Context(), w.now.Add(2*time.Second))
	require.Positive(t, w.memory("web"))
}

type panickingAdvisor struct{ *recommend.Advisor }

func (d panickingAdvisor) Contents(v *model.VPA, now time.Time) map[string]checkpoint.Content {
	if v.Object.Name == "bad" {
		panic("a defect")
	}
	return d.Advisor.Contents(v, now)
}

func TestRunOnce_RecoversPanicOfOneVPA(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour),
		deployment("bad"), aPod("bad-1", "bad", "a"), aVPA("bad", "bad", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 200)
	w.setUsage("bad-1", "a", 300, 200)
	w.iterate(1)
	defect := recipe.Chain{{Name: "defect", Apply: func(recipe.Subject, float64) float64 { panic("a defect") }}}
	bad := w.loop.Model.Find("ns", "bad")
	bad.Recipe = &recipe.Choice{Recipe: &recipe.Recipe{Target: [resources.Kinds]recipe.Chain{defect, defect}}}
	bad.Invalidate()
	w.loop.Checkpoints.Saver.Advisor = panickingAdvisor{w.loop.Advisor}
	w.iterate(2)
	require.Len(t, w.recommendations("web"), 1)
	require.Equal(t, 2.0, testutil.ToFloat64(w.metrics.panics.WithLabelValues(stepUpdate)))
	require.Positive(t, testutil.ToFloat64(w.metrics.panics.WithLabelValues(stepCheckpoints)))
	require.Positive(t, w.checkpoint("web-a").Status.TotalSamplesCount)
}

func TestCheckpoints_DeletesOrphans(t *testing.T) {
	orphan := &vpav1.VerticalPodAutoscalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone-a"},
		Spec: vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: "gone", ContainerName: "a"}}
	ignored := orphan.DeepCopy()
	ignored.Namespace = "ignored"
	w := newWorld(t, orphan, ignored, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour))
	w.config.Kube.IgnoredNamespaces = "ignored"
	w.start()
	w.setUsage("web-1", "a", 300, 200)
	w.iterate(2)
	list, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Namespace+"/"+c.Name)
	}
	require.ElementsMatch(t, []string{"ignored/gone-a", "ns/web-a"}, names)
}

func TestRunOnce_IgnoresVPAsOfOtherRecommenders(t *testing.T) {
	other := aVPA("other", "web", time.Hour)
	other.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "special"}}
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour), other).start()
	w.setUsage("web-1", "a", 300, 200)
	w.iterate(2)
	require.Len(t, w.recommendations("web"), 1)
	require.Empty(t, w.vpa("other").Status.Conditions)
}

func TestAssembly_StopEndsAllGoroutines(t *testing.T) {
	w := newWorld(t, deployment("web"))
	w.start()
	done := make(chan struct{})
	go func() { w.stop(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("something still runs")
	}
}

func TestHistory_HugeRetentionDoesNotExpire(t *testing.T) {
	v := aVPA("web", "web", time.Hour)
	v.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
		{ContainerName: "*", MemoryAggregationIntervalCount: new(int64(1 << 62))}}}
	past := usage.NewProfile(usage.NewProfileShape(24*time.Hour, 24*time.Hour))
	past.AddCPU(0.5, start().Add(-time.Hour))
	old := &vpav1.VerticalPodAutoscalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-old"},
		Spec:   vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: "web", ContainerName: "old"},
		Status: checkpoint.Status(past.Image(), start().Add(-time.Hour))}
	w := newWorld(t, deployment("web"), v, old)
	w.config.Gates.PerVPAConfig = true
	w.start()
	w.iterate(20)
	require.Equal(t, 1, w.checkpoint("web-old").Status.TotalSamplesCount)
	require.Len(t, w.recommendations("web"), 1)
}

func TestCheckpoints_RateLimitsErrorLogs(t *testing.T) {
	taken := &vpav1.VerticalPodAutoscalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-a"},
		Spec: vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: "other", ContainerName: "web-a"}}
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour), aVPA("other", "none", time.Hour), taken).start()
	w.setUsage("web-1", "a", 300, 200)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	said := func() int {
		return strings.Count(logger.GetSink().(ktesting.Underlier).GetBuffer().String(), "Failed to save some checkpoints")
	}
	pass := func(n int) {
		for range n {
			w.now = w.now.Add(time.Minute)
			w.loop.RunOnce(klog.NewContext(t.Context(), logger), w.now)
			w.syncCaches()
		}
	}
	pass(9)
	require.Equal(t, 1, said())
	pass(9)
	require.Equal(t, 2, said(), "but it is not forgotten")
	require.Equal(t, 18.0, testutil.ToFloat64(w.metrics.checkpoints.WithLabelValues("error")))
}

func TestWorkloadQuality_FollowsPublishedTarget(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.metrics.quality.Workloads = recommend.NewWorkloadQuality(registry)
	value := func(name, resource string) float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "loadline_workload_"+name && m.GetLabel()[2].GetValue() == resource {
					return m.GetGauge().GetValue()
				}
			}
		}
		return -1
	}
	w.setUsage("web-1", "a", 700, 600)
	w.iterate(1)
	require.Equal(t, -1.0, value("recommendation", "cpu"), "nothing was published before the pass")
	w.iterate(30)
	published := w.recommendations("web")[0].Target
	require.Equal(t, float64(published.Cpu().MilliValue())/1000, value("recommendation", "cpu"))
	require.EqualValues(t, published.Memory().Value(), value("recommendation", "memory"))
	require.InDelta(t, 700/float64(published.Cpu().MilliValue()), value("peak_ratio", "cpu"), 1e-9)
	require.Zero(t, value("samples_above_target_ratio", "cpu"))
	w.setUsage("web-1", "a", 2000, 600)
	w.iterate(1)
	require.Positive(t, value("samples_above_target_ratio", "cpu"))

	require.NoError(t, w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := w.loop.Roster.VPAs.VerticalPodAutoscalers("ns").Get("web")
		return err != nil
	}, time.Minute, time.Millisecond)
	w.iterate(1)
	require.Equal(t, -1.0, value("recommendation", "cpu"))
}
