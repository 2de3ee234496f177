package recommender

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
)

// A restored backup may have checkpoints before their VPAs.
func TestRestoredCluster_LoadsCheckpointsOfLaterVPAs(t *testing.T) {
	for _, name := range recipe.Names() {
		for _, tc := range []struct {
			name  string
			fails int // iterations with unreadable checkpoints
		}{{name: "readable"}, {name: "readable later", fails: 3}} {
			t.Run(name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), webVPA(name)).start()
				w.setUsage("web-1", "a", 700, 1800)
				w.iterate(60)
				if len(w.recommendations("web")) == 0 {
					return // the recipe needs more usage
				}
				before := w.memory("web")
				w.loop.Close(t.Context(), w.now)
				saved := w.checkpoint("web-a").DeepCopy()

				restored := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), saved)
				restored.config.Output.Tolerance = 0
				restored.now = w.now
				saved.CreationTimestamp = metav1.NewTime(w.now)
				_, err := restored.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Update(t.Context(), saved, metav1.UpdateOptions{})
				require.NoError(t, err)
				restored.start()
				restored.setUsage("web-1", "a", 10, 50)
				restored.iterate(3)
				require.Equal(t, saved.Status.TotalSamplesCount, restored.checkpoint("web-a").Status.TotalSamplesCount)

				fails := tc.fails
				restored.vpas.PrependReactor("list", "verticalpodautoscalercheckpoints", func(clienttesting.Action) (bool, runtime.Object, error) {
					if fails == 0 {
						return false, nil, nil
					}
					return true, nil, errors.New("unavailable")
				})
				v := webVPA(name)
				v.UID = "restored"
				restored.create(v)
				require.Eventually(t, func() bool { return restored.loop.Roster.Has("ns", "web") }, time.Minute, time.Millisecond)
				for ; fails > 0; fails-- {
					restored.iterate(1)
					require.Empty(t, restored.recommendations("web"))
					require.Equal(t, saved.Status.TotalSamplesCount, restored.checkpoint("web-a").Status.TotalSamplesCount)
				}
				restored.iterate(3)
				require.GreaterOrEqual(t, float64(restored.memory("web")), 0.9*float64(before))
				restored.loop.Close(t.Context(), restored.now)
				require.GreaterOrEqual(t, restored.checkpoint("web-a").Status.TotalSamplesCount, saved.Status.TotalSamplesCount)
			})
		}
	}
}

// Endless checkpoint pages of one namespace must not delay the iteration.
func TestRestoredCluster_ReadsNamespacesFairly(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour)).start()
	w.setUsage("web-1", "a", 700, 1800)
	w.iterate(60)
	w.loop.Close(t.Context(), w.now)
	saved := w.checkpoint("web-a").DeepCopy()

	saved.CreationTimestamp = metav1.NewTime(w.now)
	objects, now := []runtime.Object{deployment("web"), aPod("web-1", "web", "a")}, w.now
	for _, namespace := range []string{"endless", "ns", "slow"} {
		objects = append(objects, inNamespace(namespace, saved.DeepCopy()))
	}
	w = newWorld(t, objects...)
	w.now = now
	w.start().iterate(1)
	pages := map[string]int{}
	w.vpas.PrependReactor("list", "verticalpodautoscalercheckpoints", func(action clienttesting.Action) (bool, runtime.Object, error) {
		namespace := action.GetNamespace()
		pages[namespace]++
		page := &vpav1.VerticalPodAutoscalerCheckpointList{}
		switch {
		case namespace == "ns":
			page.Items = append(page.Items, *saved)
		case namespace == "endless" || namespace == "slow" && pages[namespace] < 6:
			time.Sleep(200 * time.Millisecond)
			page.Continue = "more"
		}
		return true, page, nil
	})
	for _, namespace := range []string{"endless", "ns", "slow"} {
		w.create(inNamespace(namespace, aVPA("web", "web", time.Hour)))
		require.Eventually(t, func() bool { return w.loop.Roster.Has(namespace, "web") }, time.Minute, time.Millisecond)
	}
	for i := range 4 {
		began := time.Now()
		w.loop.HandleOOMs(t.Context(), w.now)
		require.Less(t, time.Since(began), 3*time.Second)
		require.NotNil(t, w.loop.Model.Find("ns", "web"), "pass %d", i)
	}
	require.NotNil(t, w.loop.Model.Find("slow", "web"), "each iteration resumes after the last page")
	require.Equal(t, 6, pages["slow"])
	require.Nil(t, w.loop.Model.Find("endless", "web"))
}
