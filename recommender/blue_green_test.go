package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/recipe"
)

func coloredPod(name, color string) *corev1.Pod {
	p := aPod(name, "web", "a")
	p.Labels["color"] = color
	return p
}

func (w *world) promote(color string) {
	w.t.Helper()
	d := deployment("web")
	d.Spec.Selector.MatchLabels = map[string]string{"app": "web", "color": color}
	_, err := w.kube.AppsV1().Deployments("ns").Update(w.t.Context(), d, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		selector, err := w.loop.Roster.Targets.Resolve(w.t.Context(), "ns", w.vpa("web").Spec.TargetRef)
		return err == nil && selector.String() == metav1.FormatLabelSelector(d.Spec.Selector)
	}, time.Minute, time.Millisecond)
}

func blueGreen(t *testing.T, name string) *world {
	d := deployment("web")
	d.Spec = appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "color": "blue"}}}
	w := newWorld(t, d, coloredPod("blue-1", "blue"), webVPA(name)).start()
	w.config.Output.Tolerance = 0
	w.setUsage("blue-1", "a", 700, 900)
	w.iterate(60)
	return w
}

func TestSelectorChange_KeepsHistory(t *testing.T) {
	for _, name := range recipe.Names() {
		for _, tc := range []struct {
			name    string
			deleted bool
		}{{name: "old pods go", deleted: true}, {name: "old pods stay"}} {
			t.Run(name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				w := blueGreen(t, name)
				for hours := 1; len(w.recommendations("web")) == 0; hours++ {
					require.Less(t, hours, 48, "no recommendation")
					w.iterate(60)
				}
				memory := func() int64 { return w.recommendations("web")[0].Target.Memory().Value() }
				before := memory()
				w.create(coloredPod("green-1", "green"))
				w.setUsage("green-1", "a", 20, 50)
				w.iterate(3)
				w.promote("green")
				if tc.deleted {
					require.NoError(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "blue-1", metav1.DeleteOptions{}))
					delete(w.usage, containerKey("blue-1", "a"))
				}
				w.iterate(1)
				for tries := 0; w.loop.Model.Find("ns", "web").Pods() == 0; tries++ { // the pod cache may be behind
					require.Less(t, tries, 1000, "the new pod is not selected")
					time.Sleep(time.Millisecond)
					w.iterate(1)
				}
				for range 10 {
					w.iterate(1)
					require.GreaterOrEqual(t, float64(memory()), 0.9*float64(before))
				}
				require.Equal(t, 1, w.loop.Model.Find("ns", "web").Pods(), "only pods of the new color are selected")
				w.loop.Close(t.Context(), w.now)
				w.start().iterate(2)
				require.GreaterOrEqual(t, float64(memory()), 0.9*float64(before))
			})
		}
	}
}

func TestSelectorChange_CountsEachSampleOnce(t *testing.T) {
	w := blueGreen(t, "vpa")
	w.create(coloredPod("green-1", "green"))
	w.setUsage("green-1", "a", 20, 50)
	for _, color := range []string{"green", "blue", "green", "blue", "green"} {
		w.promote(color)
		w.iterate(5)
	}
	w.loop.Close(t.Context(), w.now)
	require.LessOrEqual(t, w.checkpoint("web-a").Status.TotalSamplesCount, 60+2*25)
	require.GreaterOrEqual(t, w.checkpoint("web-a").Status.TotalSamplesCount, 60+25)
}
