package recommend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

// Finished pods and pods without a request are ignored. Without pods the recommended amount
// applies.
func TestCurrentRequests_ReturnsMedianOfPods(t *testing.T) {
	k := newSketchKeeper(t, "attune")
	k.Observe(sample(resources.CPU, 0, 100), 1)
	v := k.Model.Find("ns", "v")
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	current := Pods{listers.NewPodLister(index)}.CurrentRequests
	put := func(name, cpu string, phase corev1.PodPhase) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
		if cpu != "" {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
		k.Model.PutPod(p, now())
		require.NoError(t, index.Add(p))
	}
	require.True(t, current(v, "a").Empty())
	v.Sketches["a"].SetTarget(resources.CPU, 70)
	require.Equal(t, resources.List{}.With(resources.CPU, 70), current(v, "a"))
	put("a", "", corev1.PodRunning)
	require.True(t, current(v, "a").Empty())
	put("b", "9", corev1.PodRunning)
	put("c", "1", corev1.PodRunning)
	require.EqualValues(t, 1000, current(v, "a").Value(resources.CPU), "the lower of two")
	put("d", "1100m", corev1.PodRunning)
	put("e", "8", corev1.PodSucceeded)
	require.EqualValues(t, 1100, current(v, "a").Value(resources.CPU))
}

func podWith(cpu, memory string) *Pods {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_ = index.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}}}})
	return &Pods{listers.NewPodLister(index)}
}

// boostedPod returns a pod with a startup boost. The annotation holds the CPU request without
// boost, empty for none.
func boostedPod(name, written, request string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request), corev1.ResourceMemory: resource.MustParse("1Gi")}}}}}}
	if written != "" {
		pod.Annotations = map[string]string{convert.BoostAnnotationPrefix + "a": `{"requests":{"cpu":"` + written + `","memory":"1Gi"},"limits":{}}`}
	}
	return pod
}

func withStatus(pod *corev1.Pod, cpu string) *corev1.Pod {
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", Resources: &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")}}}}
	return pod
}

func TestCurrentRequests_IgnoresStartupBoosts(t *testing.T) {
	unreadable := boostedPod("p", "450m", "1350m")
	unreadable.Annotations[convert.BoostAnnotationPrefix+"a"] = "{"
	sidecar := boostedPod("p", "", "1350m")
	sidecar.Annotations = map[string]string{convert.BoostAnnotationPrefix + "b": `{"requests":{"cpu":"10m"},"limits":{}}`}
	for _, tc := range []struct {
		name      string
		mode      vpav1.UpdateMode
		published string // target
		labels    map[string]string
		pods      []*corev1.Pod
		want      resources.Amount // 0: unknown
	}{
		{name: "no target published", pods: []*corev1.Pod{boostedPod("p", "450m", "1350m")}, want: 450},
		{name: "pod sized by the VPA", published: "450m", pods: []*corev1.Pod{boostedPod("p", "100m", "1350m")}, want: 450},
		{name: "mode Initial", mode: vpav1.UpdateModeInitial, published: "450m", pods: []*corev1.Pod{boostedPod("p", "100m", "1350m")}, want: 450},
		{name: "mode Off", mode: vpav1.UpdateModeOff, published: "450m", pods: []*corev1.Pod{boostedPod("p", "100m", "300m")}, want: 100},
		{name: "generated VPA", mode: vpav1.UpdateModeOff, published: "450m", labels: map[string]string{fleet.PolicyLabel: "shop"},
			pods: []*corev1.Pod{boostedPod("p", "100m", "1350m")}, want: 450},
		{name: "in-place boost not yet granted", published: "450m", pods: []*corev1.Pod{withStatus(boostedPod("p", "450m", "1350m"), "450m")}, want: 450},
		{name: "in-place boost granted", published: "450m", pods: []*corev1.Pod{withStatus(boostedPod("p", "450m", "1350m"), "1350m")}, want: 450},
		{name: "boost over, not yet actuated", published: "450m", pods: []*corev1.Pod{withStatus(boostedPod("p", "", "450m"), "1350m")}, want: 450},
		{name: "annotation above the request", pods: []*corev1.Pod{boostedPod("p", "64", "1350m")}, want: 1350},
		{name: "target above the request", published: "8", pods: []*corev1.Pod{boostedPod("p", "450m", "1350m")}, want: 1350},
		{name: "unreadable annotation", pods: []*corev1.Pod{unreadable}},
		{name: "another container is boosted", published: "450m", pods: []*corev1.Pod{sidecar}, want: 1350},
		{name: "rollout half done", published: "450m", want: 450, pods: []*corev1.Pod{
			boostedPod("p", "", "450m"), boostedPod("q", "100m", "1350m"), boostedPod("r", "100m", "1350m"), boostedPod("s", "100m", "1350m")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ref := &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"}
			object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", Labels: tc.labels},
				Spec: vpav1.VerticalPodAutoscalerSpec{TargetRef: ref, UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &tc.mode}}}
			if tc.labels != nil {
				object.Name = convert.GeneratedName(object)
			}
			if tc.published != "" {
				object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
					{ContainerName: "a", Target: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(tc.published)}}}}
			}
			cluster := model.NewModel(model.Config{Store: usage.NewStore(usage.DefaultConfig())})
			index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			for _, pod := range tc.pods {
				cluster.PutPod(pod, now())
				require.NoError(t, index.Add(pod))
			}
			cluster.SyncVPAs([]model.Observed{{Selector: everything, Object: object}}, now())
			current := Pods{listers.NewPodLister(index)}.CurrentRequests(cluster.Find("ns", object.Name), "a")
			got, known := current.Get(resources.CPU)
			require.Equal(t, tc.want != 0, known)
			require.Equal(t, tc.want, got)
			require.EqualValues(t, 1<<30, current.Value(resources.Memory), "a boost does not concern memory")
		})
	}
}

// Each rollout boosts the target threefold, and an iteration runs before the boosts end.
func TestAdvise_DoesNotAccumulateStartupBoosts(t *testing.T) {
	for _, text := range []string{
		"attune", "attune:cpu-decrease=no", "attune:cpu-decrease=no,cpu-max=64000", "attune:min-change=0,cpu-max-change=100",
	} {
		t.Run(text, func(t *testing.T) {
			d := newAdvisorFixture(t)
			book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
			require.NoError(t, err)
			d.vpa.Recipe = book.ForAnnotation(text)
			require.Empty(t, d.vpa.Recipe.Problem)
			known := sketch.New(d.vpa.Recipe.Needs)
			d.vpa.Sketches = map[string]*sketch.Sketch{"a": known}
			d.addSamples(t, "a", 375, 375<<20)
			minute := -8 * 24 * 60
			observe := func(minutes int) {
				for end := minute + minutes; minute < end; minute += 5 {
					for k, use := range []resources.Amount{375, 375 << 20} {
						known.Observe(now().Add(time.Duration(minute)*time.Minute), resources.Kind(k), use, 0)
					}
				}
			}
			observe(8 * 24 * 60)
			d.setPublished("a", "450m", "1Gi")
			for rollout := range 6 {
				target := d.vpa.Object.Status.Recommendation.ContainerRecommendations[0].Target
				boosted := resource.NewMilliQuantity(3*target.Cpu().MilliValue(), resource.DecimalSI)
				index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
				require.NoError(t, index.Add(boostedPod("p", "100m", boosted.String())))
				d.Pods = &Pods{listers.NewPodLister(index)}
				observe(90)
				next := d.recommend()[0].Target
				require.InDelta(t, 450, float64(next.Cpu().MilliValue()), 5, "rollout %d", rollout)
				d.setPublished("a", next.Cpu().String(), "1Gi")
			}
		})
	}
}
