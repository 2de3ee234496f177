package recommender

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

func (w *world) runPod(name string, containers ...string) {
	w.t.Helper()
	w.create(aPod(name, "web", containers...))
	for _, c := range containers {
		w.setUsage(name, c, 10, 10)
	}
	w.requirePodCached(name, true)
}

func (w *world) deletePod(name string, containers ...string) {
	w.t.Helper()
	require.NoError(w.t, w.kube.CoreV1().Pods("ns").Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	for _, c := range containers {
		delete(w.usage, containerKey(name, c))
	}
	w.requirePodCached(name, false)
}

// requirePodCached processes pod changes until the model has, or no longer has, a pod.
func (w *world) requirePodCached(name string, cached bool) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		for _, change := range w.loop.Changes.Drain() {
			w.loop.applyPod(change, w.now)
		}
		w.loop.deleteRemovedPods()
		for _, v := range w.loop.Model.VPAs() {
			if slices.Contains(v.PodNames(), name) {
				return cached
			}
		}
		return !cached
	}, 10*time.Second, time.Millisecond)
}

func (w *world) recommendedNames(vpa string) (names []string) {
	w.t.Helper()
	for _, c := range w.recommendations(vpa) {
		names = append(names, c.ContainerName)
	}
	return names
}

func (w *world) checkpointCount() int {
	w.t.Helper()
	list, err := w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	return len(list.Items)
}

func TestContainerLimit_BoundsStatusAndHeap(t *testing.T) {
	w := newWorld(t, deployment("web"), aVPA("v", "web", time.Hour)).start()
	w.loop.Checkpoints.Disabled = true // the fake watch buffers only 100 events
	w.iterate(1)
	var all []string
	for p := range 20 {
		var names []string
		for c := range 300 {
			names = append(names, fmt.Sprintf("c-%02d-%03d-abcdefghijklmnopqrstuvwxyz", p, c))
		}
		w.runPod(fmt.Sprint("p", p), names...)
		all = append(all, names...)
	}
	w.iterate(3)
	require.Equal(t, all[:model.MaxContainers], w.recommendedNames("v"))
	state, message := w.condition("v", status.TooManyContainers)
	require.Equal(t, corev1.ConditionTrue, state)
	require.Contains(t, message, "5700 have none: "+all[300])

	text, err := json.Marshal(w.vpa("v"))
	require.NoError(t, err)
	require.Less(t, len(text), 128<<10)
	const copies = 20
	decoded := make([]*vpav1.VerticalPodAutoscaler, copies)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range decoded {
		var v vpav1.VerticalPodAutoscaler
		require.NoError(t, json.Unmarshal(text, &v))
		trimmed, err := client.Trim(&v) // as in an informer cache
		require.NoError(t, err)
		decoded[i] = trimmed.(*vpav1.VerticalPodAutoscaler)
	}
	require.Less(t, int64(heap()-before), int64(copies<<20))
	runtime.KeepAlive(decoded)

	for p := range 19 {
		w.deletePod(fmt.Sprint("p", p), all[p*300:(p+1)*300]...)
	}
	w.iterate(1)
	require.Equal(t, all[19*300:], w.recommendedNames("v"), "running containers come first")
	state, _ = w.condition("v", status.TooManyContainers)
	require.Equal(t, corev1.ConditionTrue, state, "others ran a moment ago")
	w.iterate(31)
	require.Equal(t, all[19*300:], w.recommendedNames("v"))
	state, _ = w.condition("v", status.TooManyContainers)
	require.Empty(t, state)
}

func TestContainerLimit_DropsContainersWithoutPods(t *testing.T) {
	w := newWorld(t, deployment("web"), aVPA("v", "web", time.Hour)).start()
	w.iterate(1)
	w.runPod("web-1", "a")
	w.iterate(5)
	w.deletePod("web-1", "a")
	w.runPod("web-2", "b")
	w.iterate(5)
	require.Equal(t, []string{"a", "b"}, w.recommendedNames("v"), "a replacement may be pending")
	w.iterate(30)
	require.Equal(t, []string{"b"}, w.recommendedNames("v"))
	require.NotNil(t, w.checkpoint("v-a"), "a rollback needs the history")

	w.deletePod("web-2", "b")
	w.iterate(90)
	require.Equal(t, []string{"b"}, w.recommendedNames("v"), "scaled to zero")
	w.loop.Close(t.Context(), w.now)
	w.start()
	w.iterate(90)
	require.Equal(t, []string{"b"}, w.recommendedNames("v"), "scaled to zero, after a restart")

	w.runPod("web-3", "a")
	w.iterate(1)
	require.Equal(t, []string{"a", "b"}, w.recommendedNames("v"))
	w.iterate(31)
	require.Equal(t, []string{"a"}, w.recommendedNames("v"))
}

// Each VPA adds to the stored data of its pods, so only the first ten get recommendations.
func TestVPALimit_ServesFirstVPAsOfPod(t *testing.T) {
	off := vpav1.UpdateModeOff
	for _, tc := range []struct {
		name   string
		target func(i int) string
	}{
		{"one target", func(int) string { return "web" }},
		{"targets with the same selector", func(i int) string { return fmt.Sprint("web-", i) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t).start()
			vpas := model.MaxVPAs + 3
			created := map[string]bool{}
			for i := range vpas {
				if name := tc.target(i); !created[name] {
					created[name] = true
					d := deployment(name)
					d.Spec.Selector.MatchLabels["app"] = "web"
					w.create(d)
				}
				v := aVPA(fmt.Sprintf("v-%02d", i), tc.target(i), time.Duration(i+1)*time.Hour)
				if i == vpas-1 { // the oldest
					v.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: &off}
				}
				w.create(v)
			}
			require.Eventually(t, func() bool { return w.loop.Roster.Has("ns", fmt.Sprintf("v-%02d", vpas-1)) }, time.Minute, time.Millisecond)
			w.iterate(1)
			w.runPod("p", "a")
			w.iterate(2)
			var recommended []string
			for i := range vpas {
				if name := fmt.Sprintf("v-%02d", i); len(w.recommendations(name)) > 0 {
					recommended = append(recommended, name)
				}
			}
			require.Equal(t, []string{"v-02", "v-03", "v-04", "v-05", "v-06", "v-07", "v-08", "v-09", "v-10", "v-11"}, recommended)
			_, message := w.condition("v-00", status.TargetConflict)
			require.Contains(t, message, "VPA v-11 selects the same pods")
			require.Contains(t, message, "only the first 10 VPAs")
			state, _ := w.condition("v-00", vpav1.RecommendationProvided)
			require.Equal(t, corev1.ConditionFalse, state)
			w.loop.Close(t.Context(), w.now)
			require.Equal(t, model.MaxVPAs, w.checkpointCount())

			require.NoError(t, w.vpas.AutoscalingV1().VerticalPodAutoscalers("ns").Delete(t.Context(), "v-05", metav1.DeleteOptions{}))
			require.Eventually(t, func() bool { return !w.loop.Roster.Has("ns", "v-05") }, time.Minute, time.Millisecond)
			w.iterate(1)
			require.Len(t, w.recommendations("v-01"), 1, "the next one takes its place")
			require.Empty(t, w.recommendations("v-00"))
		})
	}
}
