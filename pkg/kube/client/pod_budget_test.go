package client

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/testkit"
)

// largePod returns a pod with the maximum number of containers, with names and amounts that no
// other pod has.
func largePod(namespace string, i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("pod-", i), Labels: map[string]string{"app": "web"}}}
	p.Status.Phase = corev1.PodFailed
	for c := range maxContainers {
		n := i*maxContainers + c + 1
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c-", n),
			Resources: corev1.ResourceRequirements{Requests: amountsOf(2 * n), Limits: amountsOf(2*n + 1)}})
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: fmt.Sprint("i-", n),
			Resources: corev1.ResourceRequirements{Requests: amountsOf(2 * n)}})
	}
	return p
}

func keptPod(t *testing.T, trimmer *Trimmer, p *corev1.Pod) (*Pod, *corev1.Pod) {
	t.Helper()
	object, err := trimmer.Trim(p)
	require.NoError(t, err)
	return object.(*Pod), object.(*Pod).Object()
}

// A tenant must not fill the caches with pods of hundreds of containers. Such pods need not even
// run.
func TestTrimmer_BoundsLargePodsOfNamespaces(t *testing.T) {
	trimmer, before := &Trimmer{}, testkit.LiveHeap()
	const pods = 200
	kept, refused := make([]*Pod, pods), 0
	for i := range pods {
		p, object := keptPod(t, trimmer, largePod("shop", i))
		if kept[i] = p; len(object.Spec.Containers) == maxContainers {
			continue
		}
		refused++
		require.True(t, Dropped(object.Labels), "no VPA selects it")
		original := largePod("shop", i)
		var sum corev1.ResourceList
		for c := range original.Spec.Containers {
			addResources(&sum, original.Spec.Containers[c].Resources.Requests)
		}
		require.Len(t, object.Spec.Containers, 1)
		require.True(t, sum.Cpu().Equal(*object.Spec.Containers[0].Resources.Requests.Cpu()), "it takes the same room on its node")
		require.Len(t, object.Spec.InitContainers, 1)
		last := original.Spec.InitContainers[maxContainers-1].Resources.Requests
		require.True(t, last.Cpu().Equal(*object.Spec.InitContainers[0].Resources.Requests.Cpu()))
	}
	require.NotZero(t, refused)
	heap := testkit.LiveHeap() - before
	t.Logf("%d MiB, %d of %d pods refused", heap>>20, refused, pods)
	require.Less(t, heap, int64(40<<20))

	_, other := keptPod(t, trimmer, largePod("pay", pods))
	require.Len(t, other.Spec.Containers, maxContainers, "other namespaces are not affected")
	_, again := keptPod(t, trimmer, largePod("shop", 0))
	require.Len(t, again.Spec.Containers, maxContainers, "an update of a cached pod keeps its containers")
	clear(kept)
	require.Eventually(t, func() bool {
		runtime.GC()
		_, object := keptPod(t, trimmer, largePod("shop", pods-1))
		return len(object.Spec.Containers) == maxContainers
	}, 20*time.Second, 50*time.Millisecond)
}

// Replicas share their containers in memory, so they are charged once.
func TestTrimmer_KeepsReplicasOfLargePods(t *testing.T) {
	trimmer := &Trimmer{}
	kept := make([]*Pod, 500)
	for i := range kept {
		replica := largePod("shop", 0)
		replica.Name = fmt.Sprint("replica-", i)
		p, object := keptPod(t, trimmer, replica)
		require.Len(t, object.Spec.Containers, maxContainers)
		kept[i] = p
	}
	runtime.KeepAlive(kept)
}
