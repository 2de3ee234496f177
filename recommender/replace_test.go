package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (w *world) deleteVPA(name string) {
	w.t.Helper()
	require.NoError(w.t, w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	require.Eventually(w.t, func() bool {
		_, err := w.loop.Roster.VPAs.VerticalPodAutoscalers("ns").Get(name)
		return apierrors.IsNotFound(err)
	}, time.Minute, time.Millisecond)
}

func (w *world) createVPA(uid types.UID) {
	w.t.Helper()
	v := aVPA("web", "web", time.Hour)
	v.UID = uid
	w.create(v)
	w.syncCaches()
}

// The history was restored, so only the VPA and its checkpoint have it.
func TestRecreatedVPA_KeepsHistory(t *testing.T) {
	for name, passes := range map[string]int{"at once": 0, "after a pass": 1, "when its checkpoint is deleted": 20} {
		t.Run(name, func(t *testing.T) {
			w := webWorld(t)
			before := w.recommendations("web")[0].UncappedTarget
			w.start()
			w.setUsage("web-1", "a", 100, 100)
			w.iterate(1)
			w.deleteVPA("web")
			w.iterate(passes)
			_, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Get(t.Context(), "web-a", metav1.GetOptions{})
			require.Equal(t, passes == 20, apierrors.IsNotFound(err))
			w.createVPA("second")
			w.iterate(1)
			require.Equal(t, before.Memory().Value(), w.memory("web"))
			require.Equal(t, before.Cpu().MilliValue(), w.recommendations("web")[0].UncappedTarget.Cpu().MilliValue())

			w.restart()
			w.iterate(1)
			require.Equal(t, before.Memory().Value(), w.memory("web"), "it is saved again")
			require.GreaterOrEqual(t, w.checkpoint("web-a").Status.TotalSamplesCount, 31)
		})
	}
}

// Checkpoint collection may run between deletion and creation.
func TestCheckpoints_SurviveVPARecreation(t *testing.T) {
	w := webWorld(t)
	before := w.memory("web")
	w.config.Checkpoints.CollectInterval = 2 * time.Minute
	w.start()
	w.setUsage("web-1", "a", 100, 100)
	w.iterate(2)
	w.deleteVPA("web")
	w.iterate(2) // one of them collects
	w.createVPA("second")
	w.restart()
	w.iterate(1)
	require.Equal(t, before, w.memory("web"))

	w.deleteVPA("web")
	w.iterate(8)
	require.Empty(t, w.checkpoints())
}

func TestCheckpoints_KeptIfVPADeletedMidIteration(t *testing.T) {
	w := webWorld(t)
	w.config.Checkpoints.CollectInterval = 2 * time.Minute
	w.start()
	w.setUsage("web-1", "a", 100, 100)
	w.iterate(3)
	require.Len(t, w.checkpoints(), 1)
	w.deleteVPA("web")
	w.loop.maintainCheckpoints(t.Context(), w.now.Add(time.Minute)) // end of an iteration that began before the deletion
	require.Len(t, w.checkpoints(), 1)
	w.iterate(6)
	require.Empty(t, w.checkpoints(), "it was not created again")
}
