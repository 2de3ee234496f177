package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/recommender/backfill"
)

func TestBackfill_ServesRecipesOfPolicies(t *testing.T) {
	for _, name := range recipe.Names() {
		t.Run(name, func(t *testing.T) {
			policy := aPolicy(loadlinev1alpha1.RolloutModeRecommend)
			policy.Spec.Recipe = &name
			w := withPrometheus(t, newWorld(t, policy, deployment("web"), aPod("p1", "web", "a"), generatedVPA("web")), prometheusWithHistory(t, "p1", nil)).start()
			w.iterate(1)
			got := w.recommendations("deployment-web")
			require.Len(t, got, 1, "no wait for points")
			require.GreaterOrEqual(t, got[0].Target.Cpu().MilliValue(), int64(990))
			require.Equal(t, name, w.loop.Model.Find("ns", "deployment-web").Recipe.Name)
		})
	}
}

func (w *world) awaitHistory() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.iterate(1)
		for _, v := range w.loop.Model.VPAs() {
			if !v.Backfill.Covered || v.Backfill.Pending() {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond)
}

func TestLateLoader_LoadsHistoryOfNewVPAsAndRecipes(t *testing.T) {
	for _, saver := range []bool{false, true} {
		for _, name := range recipe.Names() {
			for _, change := range []string{"new VPA", "new recipe"} {
				t.Run(name+" "+change, func(t *testing.T) {
					asks := func(text string) *vpav1.VerticalPodAutoscaler {
						v := aVPA("web", "web", time.Hour)
						v.Annotations = map[string]string{recipe.Annotation: text}
						return v
					}
					fresh := func(vpa ...*vpav1.VerticalPodAutoscaler) *world {
						w := newWorld(t, deployment("web"), aPod("p1", "web", "a"))
						w.config.MemorySaver = saver
						w = withPrometheus(t, w, prometheusWithHistory(t, "p1", nil))
						for _, v := range vpa {
							w.create(v)
						}
						w.start()
						w.setUsage("p1", "a", 1000, 1000)
						w.iterate(30)
						return w
					}
					before := fresh(asks(name))
					w := fresh()
					if change == "new recipe" {
						w = fresh(asks("vpa"))
						w.setRecipe(name)
					} else {
						w.create(asks(name))
						w.syncCaches()
					}
					w.awaitHistory()
					w.iterate(70) // attune changes a target once an hour
					before.iterate(int(w.now.Sub(before.now) / time.Minute))
					want, got := before.recommendations("web"), w.recommendations("web")
					require.Len(t, got, 1)
					require.InEpsilon(t, want[0].Target.Cpu().MilliValue(), got[0].Target.Cpu().MilliValue(), 0.02)
					require.InEpsilon(t, want[0].Target.Memory().Value(), got[0].Target.Memory().Value(), 0.02, "%s %s", want[0].Target.Memory(), got[0].Target.Memory())

					of := func(w *world) (samples int64, covered [resources.Kinds]time.Duration) {
						v := w.loop.Model.Find("ns", "web")
						for _, series := range v.Series("a") {
							_, _, n := w.loop.Store.Span(series)
							samples += n
						}
						for k := range resources.Kind(resources.Kinds) {
							if s := v.Sketches["a"]; s != nil {
								covered[k], _ = s.Coverage(k)
							}
						}
						return samples, covered
					}
					wantSamples, wantCovered := of(before)
					gotSamples, gotCovered := of(w)
					require.InDelta(t, wantSamples, gotSamples, 30, "a sample an hour stands for the time before the VPA")
					require.LessOrEqual(t, gotSamples, wantSamples)
					for k := range wantCovered {
						require.InDelta(t, wantCovered[k].Hours(), gotCovered[k].Hours(), 1)
					}
				})
			}
		}
	}
}

func TestBackfill_EmptyPrometheusIsNotComplete(t *testing.T) {
	published := aVPA("v", "x", time.Hour)
	published.Status = *publishedStatus("a", "4", "4Gi")
	w := withPrometheus(t, newWorld(t, deployment("x"), aPod("p1", "x", "a"), published), prometheusWithHistory(t, "", nil)).start()
	require.Equal(t, backfill.Empty, w.loop.Backfill.Progress().State)
	w.setUsage("p1", "a", 100, 100)
	w.iterate(60)
	require.False(t, w.metrics.history.Complete())
	require.Equal(t, "4", w.recommendations("v")[0].Target.Cpu().String())
	w.iterate(24 * 60)
	require.True(t, w.metrics.history.Complete(), "a day of live usage is enough")
	require.NotEqual(t, "4", w.recommendations("v")[0].Target.Cpu().String())
}
