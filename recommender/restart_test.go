package recommender

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/checkpoint"
)

// memory returns the uncapped memory target of the first container.
func (w *world) memory(name string) int64 {
	w.t.Helper()
	return w.recommendations(name)[0].UncappedTarget.Memory().Value()
}

// restart restarts the program without a shutdown, as after kill -9.
func (w *world) restart() { w.start() }

func TestRestart_KeepsPeakOfOpenWindow(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 300)
	w.iterate(60 * 26) // an ended window, so that the checkpoint has memory
	w.setUsage("web-1", "a", 300, 900)
	w.iterate(1)
	before := w.memory("web")
	require.Greater(t, before, int64(900<<20))

	w.restart()
	w.setUsage("web-1", "a", 300, 200)
	w.iterate(5)
	require.Equal(t, before, w.memory("web"))

	w.iterate(60 * 23) // the window continues and ends once
	undisturbed := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	undisturbed.setUsage("web-1", "a", 300, 300)
	undisturbed.iterate(60 * 26)
	undisturbed.setUsage("web-1", "a", 300, 900)
	undisturbed.iterate(1)
	undisturbed.setUsage("web-1", "a", 300, 200)
	undisturbed.iterate(5 + 60*23)
	require.Equal(t, undisturbed.memory("web"), w.memory("web"))
}

func TestRestart_CountsPeakOnce(t *testing.T) {
	weight := func(restarts int) float64 {
		w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
		w.setUsage("web-1", "a", 300, 900)
		w.iterate(3)
		for range restarts {
			w.restart()
			w.iterate(2)
		}
		w.iterate(60 * 25)
		return w.checkpoint("web-a").Status.MemoryHistogram.TotalWeight
	}
	never := weight(0)
	require.Positive(t, never)
	require.InEpsilon(t, never, weight(2), 1e-6)
	require.InEpsilon(t, never, weight(10), 1e-6)
}

func TestRestart_CountsPeakOfDeletedPodOnce(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aPod("web-2", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 900)
	w.setUsage("web-2", "a", 300, 100)
	w.iterate(3)
	before := w.memory("web")
	require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	w.loop = nil
	for range 3 { // repeated crashes before anything is saved
		w.restart()
		w.setUsage("web-2", "a", 300, 100)
	}
	w.iterate(3)
	require.Equal(t, before, w.memory("web"))
	w.iterate(60 * 25)
	require.InEpsilon(t, 2, w.checkpoint("web-a").Status.MemoryHistogram.TotalWeight/w.peakWeight(), 1e-6,
		"one peak of each pod, and the next window of web-2 still runs")
}

func (w *world) peakWeight() float64 {
	reference := w.checkpoint("web-a").Status.MemoryHistogram.ReferenceTimestamp.Time
	return math.Exp2(start().Add(time.Minute+24*time.Hour).Sub(reference).Hours() / 24)
}

func TestRestore_IgnoresStaleOpenWindows(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 900)
	w.iterate(3)
	c := w.checkpoint("web-a")
	require.Contains(t, c.Annotations, checkpoint.OpenWindows)
	c.Status.LastUpdateTime = metav1.NewTime(w.now.Add(time.Minute))
	_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Update(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.restart()
	w.iterate(1)
	_, _, running := w.loop.Store.Peak(containerKey("web-1", "a"))
	require.True(t, running)
	w.usage = nil
	w.restart()
	w.iterate(1)
	_, _, running = w.loop.Store.Peak(containerKey("web-1", "a"))
	require.False(t, running)
}

func TestRestore_ReportsMalformedOpenWindows(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 900)
	w.iterate(3)
	c := w.checkpoint("web-a")
	c.Annotations[checkpoint.OpenWindows] = "{"
	_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Update(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.restart()
	require.Equal(t, 1.0, testutil.ToFloat64(w.metrics.checkpoints.WithLabelValues("mended")))
	w.iterate(1)
	require.NotNil(t, w.loop.Model.Find("ns", "web").Restored["a"])
}

func TestRestart_SavesPeakOfFirstIteration(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 300)
	w.iterate(60 * 26)
	w.restart()
	w.setUsage("web-1", "a", 300, 900)
	w.iterate(1)
	before := w.memory("web")
	require.Greater(t, before, int64(900<<20))
	w.restart()
	w.setUsage("web-1", "a", 300, 200)
	w.iterate(5)
	require.Equal(t, before, w.memory("web"))
}

// A crash between the two writes must not lose the history behind a target.
func TestRunOnce_SavesCheckpointBeforePublishing(t *testing.T) {
	w := webWorld(t)
	w.iterate(60 * 2)
	w.vpas.ClearActions()
	w.setUsage("web-1", "a", 700, 1900)
	w.iterate(1)
	var kinds []string
	for _, action := range w.vpas.Actions() {
		if action.GetVerb() == "patch" {
			kinds = append(kinds, action.GetResource().Resource)
		}
	}
	require.Equal(t, []string{"verticalpodautoscalercheckpoints", "verticalpodautoscalers"}, kinds)
}

func TestNames_AcceptAllLegalCharacters(t *testing.T) {
	const legal = "abcdefghijklmnopqrstuvwxyz.0123456789-"
	long := strings.Repeat("x", 63-len("0-a-9"))
	label := "A.b_C-" + strings.Repeat("z", 63-len("A.b_C-")-1) + "9"
	for name, c := range map[string]struct{ vpa, pod, container string }{
		"all characters": {"v" + legal + "9", "p" + legal + "1", "c0-9z"},
		"longest":        {strings.Repeat("v", 253-1-63), strings.Repeat("p", 253), "0-a-9" + long},
		"digits":         {"1", "2", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment("web")
			d.Spec.Selector.MatchLabels = map[string]string{"example.com/app.name_x-Y": label}
			p := aPod(c.pod, "web", c.container)
			p.Labels = map[string]string{"example.com/app.name_x-Y": label, "empty": ""}
			w := newWorld(t, d, p, aVPA(c.vpa, "web", time.Hour)).start()
			w.setUsage(c.pod, c.container, 700, 600)
			w.iterate(5)
			before := w.recommendations(c.vpa)
			require.Len(t, before, 1)
			require.Equal(t, c.container, before[0].ContainerName)
			require.Equal(t, 5, w.checkpoint(c.vpa+"-"+c.container).Status.TotalSamplesCount)

			w.restart()
			w.start()
			w.setUsage(c.pod, c.container, 700, 100)
			w.iterate(2)
			require.True(t, before[0].Target.Memory().Equal(*w.recommendations(c.vpa)[0].Target.Memory()), "the peak was resumed")
		})
	}
}
