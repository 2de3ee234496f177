package backfill

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

func TestSketches_FilledFromHistory(t *testing.T) {
	pod := aPod("p", labels.Set{"app": "x"}, "c")
	pod.Status.Phase = corev1.PodRunning
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	f := newFakePrometheus(t, pod)
	f.add("cpu_total", "ns", "p", "c", constantValue("0.5"))
	f.add("mem", "ns", "p", "c", func(at time.Time) (string, bool) { return fmt.Sprint(hourlyUsage(at) << 20), true })
	known := f.sketch("loadline", pod)
	require.NotNil(t, known)
	for k := range resources.Kind(resources.Kinds) {
		covered, _ := known.Coverage(k)
		require.Equal(t, 72*time.Hour, covered, k)
	}
	require.Len(t, known.Peaks.Daily(), 4)
	require.InEpsilon(t, 1000, known.Load[resources.CPU].Level(0, known.Now), 0.05, "half a core is all that the limit allows")
	require.NotContains(t, strings.Join(f.queries, " "), "waited_total", "nobody wants to know")
}

// Without the waiting time plain CPU usage counts, and the reason is logged once.
func TestSketches_IncludeCPUWaiting(t *testing.T) {
	always02 := constantValue("0.2")
	for name, c := range map[string]struct {
		metric  string
		waited  func(time.Time) (string, bool) // nil: no series
		refused bool
		peak    float64 // 0: only usage is known
		says    string  // empty: nothing is logged
	}{
		"it waited":      {"waited_total", always02, false, 600, ""},
		"for part of it": {"waited_total", func(at time.Time) (string, bool) { return "0.4", at.Day() == 9 && at.Hour() == 8 }, false, 700, ""},
		"never":          {"waited_total", constantValue("0"), false, 0, ""},
		"no series":      {"waited_total", nil, false, 0, "Prometheus has no history of them"},
		"refused":        {"waited_total", always02, true, 0, "Failed to load past CPU waiting times"},
		"no metric":      {"", always02, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := aPod("p", labels.Set{"app": "x"}, "c")
			f := newFakePrometheus(t, pod)
			f.config.Waiting = c.metric
			f.add("cpu_total", "ns", "p", "c", constantValue("0.5"))
			f.add("mem", "ns", "p", "c", constantValue("1e9"))
			if c.waited != nil {
				f.add("waited_total", "ns", "p", "c", c.waited)
				f.add("waited_total", "ns", "other", "c", constantValue("1"))
			}
			f.fails = func(query string, _ time.Time) (int, string) {
				return map[bool]int{true: 400}[c.refused && strings.Contains(query, "waited_total")], ""
			}
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			f.ctx = klog.NewContext(t.Context(), logger)
			known := f.sketch("cruisekube", pod)
			require.InEpsilon(t, 500, known.Hours[resources.CPU].Peak(), 0.002)
			if c.peak == 0 {
				require.Nil(t, known.PressureHours)
			} else {
				require.InEpsilon(t, c.peak, known.PressureHours.Peak(), 0.002)
			}
			logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			require.Equal(t, min(len(c.says), 1), strings.Count(logged, "using CPU usage unchanged"), logged)
			require.Contains(t, logged, c.says)
		})
	}
}

// sketch loads history with a recipe and returns the sketch of container c.
func (f *fakePrometheus) sketch(text string, pod *corev1.Pod) *sketch.Sketch {
	t := f.t
	vpas := []model.Observed{{Selector: labels.Everything(), Object: &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", Annotations: map[string]string{recipe.Annotation: text}},
		Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "d"}},
	}}}
	f.config.VPAs = rosterOf(t, vpas...)
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	store := usage.NewStore(usage.DefaultConfig())
	keeper := &recommend.SketchKeeper{Book: book, Model: model.NewModel(model.Config{Store: store})}
	f.config.Sketches = keeper
	keeper.Model.PutPod(pod, now())
	keeper.Model.SyncVPAs(vpas, now())
	keeper.Follow(klog.Background(), now())

	l := New(f.config, now())
	l.Run(f.ctx)
	require.Equal(t, Complete, l.Progress().State)
	loading := &recommend.LoadingGauge{}
	loading.Begin(l.Progress().Total)
	l.Absorb(keeper.Model, store, keeper, loading, now())
	return keeper.Model.Find("ns", "v").Sketches["c"]
}
