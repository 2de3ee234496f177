package backfill

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// What a recipe remembers is filled from the past, too, with the CPU limit that a pod
// has now, and becomes part of what was seen since.
func TestHistoryFillsSketches(t *testing.T) {
	pod := aPod("p", labels.Set{"app": "x"}, "c")
	pod.Status.Phase = corev1.PodRunning
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	f := newFake(t, pod)
	f.add("cpu_total", "ns", "p", "c", always("0.5"))
	f.add("mem", "ns", "p", "c", func(at time.Time) (string, bool) { return fmt.Sprint(wave(at) << 20), true })
	vpas := []model.Observed{{Selector: labels.Everything(), Object: &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", Annotations: map[string]string{recipe.Annotation: "loadline"}},
		Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "d"}},
	}}}
	f.config.VPAs = func(context.Context) []model.Observed { return vpas }
	book, err := recipe.NewBook("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	store := usage.NewStore(usage.DefaultConfig())
	keeper := &recommend.SketchKeeper{Book: book, Model: model.NewModel(model.Config{Store: store})}
	f.config.Sketches = keeper.For
	keeper.Model.PutPod(pod, now())
	keeper.Model.SyncVPAs(vpas, now())
	keeper.Follow(klog.Background(), now())

	l := New(f.config, now())
	l.Run(t.Context())
	loading := &LoadingGauge{}
	loading.Begin(l.Progress().Total)
	l.Absorb(keeper.Model, store, keeper, loading, now())
	known := keeper.Model.Find("ns", "v").Sketches["c"]
	require.NotNil(t, known)
	for k := range resources.Kind(resources.Kinds) {
		covered, _ := known.Covers(k)
		require.Equal(t, 72*time.Hour, covered, k)
	}
	require.Len(t, known.Peaks.Daily(), 4)
	require.InEpsilon(t, 1000, known.Load[resources.CPU].Level(0, known.Now), 0.05, "half a core is all that the limit allows")
}
