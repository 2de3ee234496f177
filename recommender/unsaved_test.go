package recommender

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/recommender/status"
)

// refuseCheckpoints rejects checkpoint writes while refused is true, as a quota or webhook does.
func (w *world) refuseCheckpoints(refused *bool) {
	w.vpas.PrependReactor("*", "verticalpodautoscalercheckpoints", func(a clienttesting.Action) (bool, runtime.Object, error) {
		verb := a.GetVerb()
		return *refused && (verb == "patch" || verb == "create"), nil, errors.New("exceeded quota")
	})
}

func TestTargetUnsaved_HoldsTargetAfterCrash(t *testing.T) {
	for name, cpu := range map[string]int64{"memory": 900, "cpu and memory": 3000} {
		t.Run(name, func(t *testing.T) {
			w := webWorld(t)
			saved := w.memory("web")
			refused := true
			w.refuseCheckpoints(&refused)
			w.setUsage("web-1", "a", 900, 2000)
			w.usage[containerKey("web-1", "a")] = [resources.Kinds]resources.Amount{resources.Amount(cpu), 2000 << 20}
			w.iterate(1)
			raised := w.recommendations("web")[0].UncappedTarget
			require.Greater(t, raised.Memory().Value(), saved, "a target that is too low kills pods")
			mark, message := w.condition("web", status.TargetUnsaved)
			require.Equal(t, corev1.ConditionTrue, mark, "in the same write")
			require.Contains(t, message, "cannot be written")

			for range 3 { // crashes at once, and again before new usage
				w.restart()
				w.setUsage("web-1", "a", 100, 100)
				w.iterate(2)
				require.Equal(t, raised.Memory().Value(), w.memory("web"))
				require.Equal(t, raised.Cpu().MilliValue(), w.recommendations("web")[0].UncappedTarget.Cpu().MilliValue())
				held, _ := w.condition("web", status.TargetHeld)
				require.Equal(t, corev1.ConditionTrue, held)
				refused = false // from now on saves succeed, with lower usage
			}
			mark, _ = w.condition("web", status.TargetUnsaved)
			require.Empty(t, mark)
			w.iterate(60 * 26)
			require.Less(t, w.memory("web"), raised.Memory().Value(), "it is proven that this is enough")
			held, _ := w.condition("web", status.TargetHeld)
			require.Empty(t, held)
		})
	}
}

func TestTargetUnsaved_ClearedAfterSave(t *testing.T) {
	marked := func(w *world) bool {
		is, _ := w.condition("web", status.TargetUnsaved)
		return is == corev1.ConditionTrue
	}
	w := webWorld(t)
	refused := true
	w.refuseCheckpoints(&refused)
	w.iterate(30)
	require.False(t, marked(w), "no target rests on what was not saved")
	w.setUsage("web-1", "a", 900, 2000)
	w.iterate(5)
	require.True(t, marked(w))
	refused = false
	w.iterate(2)
	require.False(t, marked(w))
	raised := w.memory("web")
	w.restart()
	w.setUsage("web-1", "a", 900, 100)
	w.iterate(5)
	require.Equal(t, raised, w.memory("web"))
	held, _ := w.condition("web", status.TargetHeld)
	require.Empty(t, held, "nothing is in doubt")
}

// crashedUnsaved returns a world that crashed after it published an unsaved target. Checkpoints can
// be written again.
func crashedUnsaved(t *testing.T, mib resources.Amount) (w *world, raised int64) {
	w = webWorld(t)
	refused := true
	w.refuseCheckpoints(&refused)
	w.setUsage("web-1", "a", 900, 2000)
	w.iterate(1)
	raised = w.memory("web")
	mark, _ := w.condition("web", status.TargetUnsaved)
	require.Equal(t, corev1.ConditionTrue, mark)
	refused = false
	w.restart()
	w.setUsage("web-1", "a", 900, mib)
	return w, raised
}

func TestTargetUnsaved_KeptAfterCrashWithSameUsage(t *testing.T) {
	w := webWorld(t)
	refused := true
	w.refuseCheckpoints(&refused)
	w.setUsage("web-1", "a", 900, 2000)
	w.iterate(1)
	raised := w.memory("web")
	w.restart()
	w.setUsage("web-1", "a", 900, 2000)
	w.iterate(12)
	require.Equal(t, raised, w.memory("web"))
	mark, _ := w.condition("web", status.TargetUnsaved)
	require.Equal(t, corev1.ConditionTrue, mark, "nothing was saved all the time")
	w.restart()
	w.setUsage("web-1", "a", 100, 100)
	w.iterate(2)
	require.Equal(t, raised, w.memory("web"))
}

func TestTargetHeld_SavesTargetReachedAgain(t *testing.T) {
	stays := func(w *world, reached int64) {
		w.t.Helper()
		mark, _ := w.condition("web", status.TargetUnsaved)
		require.Empty(w.t, mark)
		held, _ := w.condition("web", status.TargetHeld)
		require.Empty(w.t, held)
		w.restart()
		w.setUsage("web-1", "a", 100, 100)
		w.iterate(2)
		require.GreaterOrEqual(w.t, w.memory("web"), reached)
	}
	t.Run("at once", func(t *testing.T) {
		w, raised := crashedUnsaved(t, 2000)
		w.iterate(1)
		require.Equal(t, raised, w.memory("web"))
		stays(w, raised)
	})
	for held := 27; held < 33; held++ { // at any point of the checkpoint interval
		t.Run(fmt.Sprintf("held for %d minutes", held), func(t *testing.T) {
			w, raised := crashedUnsaved(t, 100)
			w.iterate(held)
			require.Equal(t, raised, w.memory("web"))
			w.setUsage("web-1", "a", 900, 2000)
			w.iterate(1)
			stays(w, raised)
		})
	}
}

func TestTargetHeld_SavesOncePerInterval(t *testing.T) {
	w, raised := crashedUnsaved(t, 100)
	w.iterate(1)
	w.vpas.ClearActions()
	w.iterate(60)
	require.Equal(t, raised, w.memory("web"))
	written := 0
	for _, what := range w.writes() {
		if what == "patch verticalpodautoscalercheckpoints" {
			written++
		}
	}
	require.InDelta(t, 6, written, 1, "one in ten minutes, as ever")
}

func TestTargetHeld_ReleasedDespiteRestarts(t *testing.T) {
	w, raised := crashedUnsaved(t, 100)
	for range 2 {
		w.iterate(60 * 11)
		require.Equal(t, raised, w.memory("web"), "less than a day was seen")
		w.restart()
		w.setUsage("web-1", "a", 900, 100)
	}
	w.iterate(60)
	require.Equal(t, raised, w.memory("web"))
	w.iterate(60 * 2)
	require.Less(t, w.memory("web"), raised)
	held, _ := w.condition("web", status.TargetHeld)
	require.Empty(t, held)
}

func TestTargetHeld_DowntimeDoesNotCount(t *testing.T) {
	w, raised := crashedUnsaved(t, 100)
	w.iterate(60)
	w.now = w.now.Add(48 * time.Hour)
	w.restart()
	w.setUsage("web-1", "a", 900, 100)
	w.iterate(60 * 20)
	require.Equal(t, raised, w.memory("web"), "nothing was seen in the meantime")
	w.iterate(60 * 4)
	require.Less(t, w.memory("web"), raised)
}
