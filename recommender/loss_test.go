package recommender

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/recommender/status"
)

// webWorld returns a world with 30 minutes of high usage.
func webWorld(t *testing.T) *world {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 900, 900)
	w.iterate(30)
	return w
}

func (w *world) checkpoints() []vpav1.VerticalPodAutoscalerCheckpoint {
	list, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	return list.Items
}

func (w *world) update(c *vpav1.VerticalPodAutoscalerCheckpoint) {
	_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Update(w.t.Context(), c, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func TestTargetHeld_WhileHistoryMayBeLost(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"the checkpoint is rejected": func(w *world) {
			c := w.checkpoint("web-a")
			c.Status.Version = "v4"
			w.update(c)
		},
		"the checkpoint is gone": func(w *world) {
			require.NoError(w.t, w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Delete(w.t.Context(), "web-a", metav1.DeleteOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := webWorld(t)
			before := w.recommendations("web")[0]
			lose(w)
			w.start()
			w.setUsage("web-1", "a", 100, 100)
			w.iterate(60 * 12)
			after := w.recommendations("web")[0]
			require.Equal(t, before.Target.Cpu().MilliValue(), after.Target.Cpu().MilliValue())
			require.Equal(t, before.Target.Memory().Value(), after.Target.Memory().Value())
			held, message := w.condition("web", status.TargetHeld)
			require.Equal(t, corev1.ConditionTrue, held)
			require.Contains(t, message, "cpu and memory of container a")

			w.setUsage("web-1", "a", 100, 2000)
			w.iterate(1)
			require.Greater(t, w.memory("web"), before.UncappedTarget.Memory().Value(), "it may rise")
			_, message = w.condition("web", status.TargetHeld)
			require.Contains(t, message, "cpu of container a")

			w.iterate(60 * 13)
			require.Less(t, w.recommendations("web")[0].Target.Cpu().MilliValue(), int64(200), "a day of samples proves it")
			held, _ = w.condition("web", status.TargetHeld)
			require.Empty(t, held)
		})
	}
}

func TestTargetHeld_MemoryWithoutOpenWindows(t *testing.T) {
	w := webWorld(t)
	before := w.recommendations("web")[0]
	c := w.checkpoint("web-a")
	c.Annotations = nil // as the reference recommender writes it
	w.update(c)
	w.start()
	w.setUsage("web-1", "a", 1, 100)
	w.iterate(60 * 6)
	after := w.recommendations("web")[0]
	require.Equal(t, before.Target.Memory().Value(), after.Target.Memory().Value())
	require.Less(t, after.Target.Cpu().MilliValue(), before.Target.Cpu().MilliValue(), "its history is complete")
}

func TestTargetHeld_DuringBackfill(t *testing.T) {
	w := webWorld(t)
	before := w.memory("web")
	w.start()
	w.metrics.history.Begin(8)
	w.loop.Model.SyncVPAs(nil, w.now)
	w.setUsage("web-1", "a", 1, 100)
	w.loop.Restored = nil // no checkpoint was restored
	w.iterate(20)
	require.Equal(t, before, w.memory("web"))
	w.metrics.history.SetComplete()
	w.loop.Model.Find("ns", "web").Trust.Untrusted = nil
	w.iterate(1)
	require.Less(t, w.memory("web"), before)
}

func TestTargetHeld_NotForNewWorkloads(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 2000, 500)
	w.iterate(1)
	before := w.recommendations("web")[0].Target.Cpu().MilliValue()
	w.setUsage("web-1", "a", 10, 500)
	w.iterate(60)
	require.Less(t, w.recommendations("web")[0].Target.Cpu().MilliValue(), before)
	held, _ := w.condition("web", status.TargetHeld)
	require.Empty(t, held)
}

func TestStatus_ReportsSufficientHistory(t *testing.T) {
	w := webWorld(t)
	enough, message := w.condition("web", status.SufficientHistory)
	require.Equal(t, corev1.ConditionFalse, enough)
	require.Contains(t, message, "less than 1 hour")
	w.iterate(60 * 24)
	enough, message = w.condition("web", status.SufficientHistory)
	require.Equal(t, corev1.ConditionTrue, enough)
	require.Contains(t, message, "at least 1 day")
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.depth.WithLabelValues("1day")))
}

func TestClose_SavesDeferredCheckpoints(t *testing.T) {
	w := webWorld(t)
	w.iterate(60)
	w.iterate(1)
	lag := func() int64 {
		total := int64(0)
		for _, c := range w.checkpoints() {
			total += int64(c.Status.TotalSamplesCount)
		}
		return 91 - total
	}
	require.Positive(t, lag(), "not every pass writes it")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	w.loop.Close(ctx, w.now)
	require.Zero(t, lag())
}

func TestClose_SavesOnlyWhileLeading(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour))
		w.config.Interval = 200 * time.Millisecond
		w.config.Election.Enabled = lost
		w.config.Election.LeaseDuration, w.config.Election.RenewDeadline, w.config.Election.RetryPeriod = 5*time.Second, time.Second, 20*time.Millisecond
		w.setUsage("web-1", "a", 900, 900)
		w.clock = time.Now
		var away atomic.Bool
		w.kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the API server is gone")
		})
		attempts, goOn := make(chan struct{}, 1000), make(chan struct{})
		w.vpas.PrependReactor("patch", "verticalpodautoscalercheckpoints", func(clienttesting.Action) (bool, runtime.Object, error) {
			attempts <- struct{}{}
			<-goOn
			return true, nil, errors.New("not now") // keeps a checkpoint unsaved
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- runElected(ctx, w.config, process.OS{}, w.parts()) }()
		<-attempts
		if lost {
			away.Store(true)
			require.ErrorContains(t, <-ended, "lost the lease")
		}
		stop() // shutdown starts during the iteration
		close(goOn)
		if lost {
			time.Sleep(300 * time.Millisecond)
		} else {
			require.NoError(t, <-ended)
		}
		require.Equal(t, !lost, len(attempts) > 0)
	}
}

func TestMetricsOutage_WritesLittleForAnHour(t *testing.T) {
	w := webWorld(t)
	w.loop.Publisher.Tolerance = 0 // no deferred bounds within the hour
	w.iterate(1)
	before := w.recommendations("web")
	w.sourceErr = errors.New("503")
	w.vpas.ClearActions()
	w.iterate(60)
	require.Equal(t, before, w.recommendations("web"))
	require.LessOrEqual(t, len(w.writes()), 4, "nothing changed: at most what was put off before")
	w.sourceErr = nil
	w.iterate(5)
	require.NotNil(t, w.loop.Model.Find("ns", "web"))
	w.loop.Close(t.Context(), w.now)
	require.Equal(t, 36, w.checkpoint("web-a").Status.TotalSamplesCount)
}

func (w *world) writes() (verbs []string) {
	for _, a := range w.vpas.Actions() {
		if v := a.GetVerb(); v == "patch" || v == "create" || v == "delete" {
			verbs = append(verbs, v+" "+a.GetResource().Resource)
		}
	}
	return verbs
}

func TestClockJump_KeepsHistory(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ahead": 24 * time.Hour, "behind": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := webWorld(t)
			before := w.memory("web")
			actual := w.now
			w.clock = func() time.Time { return actual }
			tick := func(n int, off time.Duration) {
				for range n {
					actual = actual.Add(time.Minute)
					w.now = actual // sample times do not jump
					w.loop.RunOnce(t.Context(), actual.Add(off))
					w.syncCaches()
				}
			}
			tick(10, jump)
			tick(30, 0)
			require.Equal(t, before, w.memory("web"))
			peak, end, open := w.loop.Store.Peak(containerKey("web-1", "a"))
			require.True(t, open)
			require.Equal(t, resources.Amount(900<<20), peak)
			require.Less(t, end.Sub(actual), 24*time.Hour)
			w.loop.Close(t.Context(), actual)
			taken := w.checkpoint("web-a").Status.TotalSamplesCount
			require.GreaterOrEqual(t, taken, 60, "at most the samples of the bad time are missing")
			tick(5, 0)
			w.loop.Close(t.Context(), actual)
			require.Equal(t, taken+5, w.checkpoint("web-a").Status.TotalSamplesCount)
			require.Contains(t, w.checkpoint("web-a").Annotations, checkpoint.OpenWindows)
		})
	}
}

func TestClockJump_KeepsIdleHistory(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour),
		deployment("night"), aPod("night-1", "night", "a"), aVPA("night", "night", time.Hour)).start()
	w.setUsage("web-1", "a", 900, 900)
	w.setUsage("night-1", "a", 900, 900)
	w.iterate(30)
	before := w.recommendations("night")
	require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "night-1", metav1.DeleteOptions{})) // scaled down overnight
	w.loop.Close(t.Context(), w.now)
	w.start()
	w.iterate(2)
	truth := w.now
	w.clock = func() time.Time { return truth }
	for range 3 {
		truth = truth.Add(time.Minute)
		w.now = truth
		w.loop.RunOnce(t.Context(), truth.AddDate(0, 1, 0))
		w.syncCaches()
	}
	w.now = truth
	w.iterate(2)
	require.Equal(t, 30, w.checkpoint("night-a").Status.TotalSamplesCount)
	require.Equal(t, before[0].UncappedTarget, w.recommendations("night")[0].UncappedTarget)
}
