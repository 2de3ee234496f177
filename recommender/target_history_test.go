package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/recipe"
)

// worldWithLargeTarget has a VPA on a Deployment with high usage. Another Deployment has a
// container with the same name.
func worldWithLargeTarget(t *testing.T, recipeText string) *world {
	v := aVPA("web", "web", time.Hour)
	v.Annotations = map[string]string{recipe.Annotation: recipeText}
	w := newWorld(t, deployment("web"), deployment("small"),
		aPod("web-1", "web", "a", "b"), aPod("small-1", "small", "a"), v).start()
	w.setUsage("web-1", "a", 9600, 20<<10)
	w.setUsage("web-1", "b", 9600, 20<<10)
	w.setUsage("small-1", "a", 50, 300)
	w.iterate(30)
	require.Greater(t, w.recommendations("web")[0].Target.Cpu().MilliValue(), int64(9000))
	return w
}

func (w *world) retarget(deployment string) {
	w.t.Helper()
	v := w.vpa("web")
	v.Spec.TargetRef.Name = deployment
	v.Generation++
	_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Update(w.t.Context(), v, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func (w *world) requireSmall() {
	w.t.Helper()
	r := w.recommendations("web")
	require.Len(w.t, r, 1, "container b is not of this target")
	require.Less(w.t, r[0].Target.Cpu().MilliValue(), int64(200))
	require.Less(w.t, r[0].Target.Memory().Value(), int64(1<<30))
}

func TestRetarget_WhileDownDropsHistory(t *testing.T) {
	for _, text := range []string{"vpa", "loadline", "autopilot"} {
		t.Run(text, func(t *testing.T) {
			w := worldWithLargeTarget(t, text)
			w.stop()
			w.stop = nil
			w.retarget("small")
			w.start()
			w.iterate(3)
			w.requireSmall()

			w.iterate(12)
			w.restart() // the checkpoints are of the new target
			w.iterate(1)
			w.requireSmall()
			require.GreaterOrEqual(t, w.checkpoint("web-a").Status.TotalSamplesCount, 10, "its own history is restored")
			require.Less(t, w.checkpoint("web-a").Status.TotalSamplesCount, 100)
			_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Get(t.Context(), "web-b", metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err), "nobody has the container")
		})
	}
}

// The restart happens before the history of the new target is saved.
func TestRetarget_WhileRunningDropsHistory(t *testing.T) {
	for name, passes := range map[string]int{"killed at once": 1, "killed later": 20} {
		t.Run(name, func(t *testing.T) {
			w := worldWithLargeTarget(t, "vpa")
			w.retarget("small")
			w.syncCaches()
			w.iterate(passes)
			w.requireSmall()
			if passes > 10 {
				require.Len(t, w.checkpoints(), 1, "that of container b is of no use any more")
			}
			w.restart()
			w.iterate(2)
			w.requireSmall()
			w.iterate(12)
			require.Len(t, w.checkpoints(), 1, "that of container b is of no use any more")
		})
	}
}

// A target without pods saves nothing, so only the checkpoint of the former target exists.
func TestRetarget_WithoutPodsDropsHistory(t *testing.T) {
	w := worldWithLargeTarget(t, "vpa")
	w.create(deployment("later"))
	w.retarget("later")
	w.syncCaches()
	w.restart()
	w.iterate(1)
	w.create(aPod("later-1", "later", "a"))
	w.setUsage("later-1", "a", 50, 300)
	require.Eventually(t, func() bool { w.iterate(1); return len(w.recommendations("web")) > 0 }, time.Minute, time.Millisecond)
	w.requireSmall()
}

func TestRetarget_KeepsHistoryOfOtherVPA(t *testing.T) {
	w := newWorld(t, deployment("web"), deployment("small"), aPod("web-1", "web", "a"), aPod("small-1", "small", "a"),
		aVPA("web", "web", time.Hour), aVPA("other", "web", time.Minute)).start()
	w.setUsage("web-1", "a", 900, 900)
	w.setUsage("small-1", "a", 50, 50)
	w.iterate(60)
	before := w.memory("other")
	w.stop()
	w.stop = nil
	w.retarget("small")
	w.start()
	w.setUsage("web-1", "a", 100, 100)
	w.iterate(3)
	require.Equal(t, before, w.memory("other"), "with the window that was open")
	require.Less(t, w.memory("web"), before)
}

// The reference recommender and older releases do not store the target.
func TestRestore_UsesCheckpointWithoutTarget(t *testing.T) {
	for name, change := range map[string]func(*vpav1.VerticalPodAutoscalerCheckpoint){
		"no annotation": func(c *vpav1.VerticalPodAutoscalerCheckpoint) { c.Annotations = nil },
		"none is in it": func(c *vpav1.VerticalPodAutoscalerCheckpoint) {
			c.Annotations[checkpoint.OpenWindows] = `{"written":"2026-03-03T10:00:00Z"}`
		},
		"another status": func(c *vpav1.VerticalPodAutoscalerCheckpoint) {
			c.Status.LastUpdateTime.Time = c.Status.LastUpdateTime.Add(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldWithLargeTarget(t, "vpa")
			c := w.checkpoint("web-a")
			change(c)
			w.update(c)
			w.stop()
			w.stop = nil
			w.retarget("small")
			w.start()
			w.iterate(1)
			require.NotNil(t, w.loop.Model.Find("ns", "web").Restored["a"])
		})
	}
}
