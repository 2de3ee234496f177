package recommend

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/resources"
)

// One pod does not decide what is in force, be it the first by name; one that ended or
// has no request says nothing. Without pods it is what they will get.
func TestWhatIsInForceIsTheMedianOfThePods(t *testing.T) {
	k := keeper(t, "attune")
	k.Observe(sample(resources.CPU, 0, 100), 1)
	v := k.Model.Find("ns", "v")
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	current := Pods{listers.NewPodLister(index)}.InForce
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
	v.Sketches["a"].Recommended(resources.CPU, 70)
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

// podWith returns a cache with the pod p that runs the container a with requests.
func podWith(cpu, memory string) *Pods {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_ = index.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}}}})
	return &Pods{listers.NewPodLister(index)}
}
