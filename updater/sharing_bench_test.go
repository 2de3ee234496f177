package updater

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/updater/shares"
)

// sharedEverywhere returns a DryRun policy for all Deployments.
func sharedEverywhere() []*loadlinev1alpha1.SizingPolicy {
	p := sharingPolicy(loadlinev1alpha1.SharingDryRun, evicting)
	p.Spec.Namespaces.Names = []string{"*"}
	return []*loadlinev1alpha1.SizingPolicy{p}
}

// BenchmarkShare measures a sharing round over 500 nodes with 50,000 pods: unchanged, with one pod
// changed on each of 50 nodes, and the first round of a process.
func BenchmarkShare(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	cluster := steadyCluster{vpas: 10_000, pods: 5, nodes: 500, policies: sharedEverywhere()}
	loop, reset, c := cluster.filled(b)
	pods := c.pods.Core().V1().Pods().Informer().GetStore()
	it, err := loop.read(b.Context(), noon, func(string) {})
	require.NoError(b, err)
	round := func(tb testing.TB) {
		found, err := loop.shareRounds.Sharing.RunRound(tb.Context(), it.input(), noon, shares.SharingStates{})
		require.NoError(tb, err)
		require.Len(tb, found.Nodes, 500)
		require.Equal(tb, 50_000, found.Policies["fleet"].Pods)
	}
	for name, before := range map[string]func(tb testing.TB, n int){
		"at_rest":  func(testing.TB, int) {},
		"50_moved": func(tb testing.TB, n int) { touch(tb, pods, 50, n) },
		"first": func(tb testing.TB, _ int) {
			reset()
			runtime.GC() // a new process has no previous reader to collect
		},
	} {
		b.Run(name, func(b *testing.B) {
			it, err = loop.read(b.Context(), noon, func(string) {})
			require.NoError(b, err)
			round(b)
			b.ReportAllocs()
			var spent float64
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				before(b, n)
				begin := testkit.CPUTime(b)
				b.StartTimer()
				round(b)
				spent += float64((testkit.CPUTime(b) - begin).Microseconds()) / 1000
			}
			b.ReportMetric(spent/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkDivide measures the cost of shares in an iteration over 500 nodes with 50,000 sharing
// pods: all at their shares, and all to be moved.
func BenchmarkDivide(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	policy := sharingOnPolicy(evicting)
	policy.Spec.Namespaces.Names = []string{"*"}
	cluster := steadyCluster{vpas: 10_000, pods: 5, nodes: 500, policies: []*loadlinev1alpha1.SizingPolicy{policy}}
	loop, _, c := cluster.filled(b)
	for _, one := range []struct {
		name, base, peak string // pods request 200m
		moved            int
	}{{"at_rest", "200m", "200m", 0}, {"all_moved", "300m", "400m", 50_000}} {
		b.Run(one.name, func(b *testing.B) {
			store := c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().GetStore()
			for _, o := range store.List() {
				vpa := o.(*vpav1.VerticalPodAutoscaler).DeepCopy()
				r := &vpa.Status.Recommendation.ContainerRecommendations[0]
				r.LowerBound, r.Target, r.UpperBound = list(one.base, "200Mi"), list(one.peak, "200Mi"), list(one.peak, "200Mi")
				vpa.ResourceVersion = one.name
				require.NoError(b, store.Update(vpa))
			}
			it, err := loop.read(b.Context(), noon, func(string) {})
			require.NoError(b, err)
			found, err := loop.shareRounds.Sharing.RunRound(b.Context(), it.input(), noon, shares.SharingStates{Default: shares.Active, WithNodeAutoscaler: shares.Active})
			require.NoError(b, err)
			require.Equal(b, 50_000, found.Policies["fleet"].Sharing)
			b.ReportAllocs()
			var spent float64
			for b.Loop() {
				b.StopTimer()
				it, err := loop.read(b.Context(), noon, func(string) {})
				require.NoError(b, err)
				begin := testkit.CPUTime(b)
				b.StartTimer()
				division := loop.shareRounds.Sharing.SetShares(b.Context(), it.input(), &it.view, false, noon)
				spent += float64((testkit.CPUTime(b) - begin).Microseconds()) / 1000
				require.Equal(b, one.moved, len(division.Moves)) //nolint:testifylint // it would print them all
			}
			b.ReportMetric(spent/float64(b.N), "cpu-ms/op")
		})
	}
}

func touch(tb testing.TB, store cache.Store, pods, n int) {
	var trimmer client.Trimmer
	for i := range pods {
		object, found, err := store.GetByKey(fmt.Sprintf("ns-0/web-%d-%d", i/5, 2+i%5))
		require.NoError(tb, err)
		require.True(tb, found)
		pod, _ := client.PodOf(object)
		pod = pod.DeepCopy()
		pod.ResourceVersion = fmt.Sprintf("%d-%d", n, i)
		trimmed, err := trimmer.Trim(pod)
		require.NoError(tb, err)
		require.NoError(tb, store.Update(trimmed))
	}
}

func TestShare_IncrementalMatchesFull(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		loop, reset, c := steadyCluster{vpas: 4, pods: 3, nodes: 3, policies: sharedEverywhere()}.filled(t)
		pods, vpas := c.pods.Core().V1().Pods().Informer().GetStore(), c.vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer().GetStore()
		nodes := c.constraints.Core().V1().Nodes().Informer().GetStore()
		for step := range 6 {
			change := rapid.SampledFrom([]func(){
				func() { changePod(rt, t, pods, step) },
				func() { removeOne(rt, t, pods) },
				func() { changeVPA(rt, t, vpas) },
				func() { changeRivalVPA(rt, t, vpas) },
				func() { changeNode(rt, t, nodes) },
				func() {},
			}).Draw(rt, "change")
			change()
			round := func() *shares.Round {
				it, err := loop.read(t.Context(), noon, func(string) {})
				require.NoError(t, err)
				found, err := loop.shareRounds.Sharing.RunRound(t.Context(), it.input(), noon, shares.SharingStates{})
				require.NoError(t, err)
				return found
			}
			got := round()
			reader, sharing := loop.reader, loop.shareRounds.Sharing
			reset()
			want := round()
			loop.reader, loop.shareRounds.Sharing = reader, sharing
			require.Equal(t, want, got)
		}
	})
}

func randomObject[T any](rt *rapid.T, store cache.Store) (T, bool) {
	keys := store.ListKeys()
	slices.Sort(keys)
	var none T
	if len(keys) == 0 {
		return none, false
	}
	object, _, _ := store.GetByKey(rapid.SampledFrom(keys).Draw(rt, "object"))
	if pod, ok := client.PodOf(object); ok {
		object = pod.DeepCopy()
	}
	found, ok := object.(T)
	return found, ok
}

func changePod(rt *rapid.T, t *testing.T, store cache.Store, step int) {
	pod, ok := randomObject[*corev1.Pod](rt, store)
	if !ok {
		return
	}
	pod.ResourceVersion = fmt.Sprintf("step-%d", step)
	switch rapid.IntRange(0, 3).Draw(rt, "what") {
	case 0:
		pod.Spec.Containers[0].Resources.Requests = list(fmt.Sprintf("%dm", rapid.IntRange(100, 900).Draw(rt, "cpu")), "200Mi")
		pod.Status.ContainerStatuses[0].Resources = &pod.Spec.Containers[0].Resources
	case 1:
		pod.Status.QOSClass = corev1.PodQOSGuaranteed
	case 2: // another pod with the same name on another node
		pod.UID, pod.Spec.NodeName = types.UID(pod.ResourceVersion), fmt.Sprintf("n%d", rapid.IntRange(1, 4).Draw(rt, "node"))
	case 3:
		pod.OwnerReferences = nil
	}
	var trimmer client.Trimmer
	trimmed, err := trimmer.Trim(pod)
	require.NoError(t, err)
	require.NoError(t, store.Update(trimmed))
}

func removeOne(rt *rapid.T, t *testing.T, store cache.Store) {
	if pod, ok := randomObject[*corev1.Pod](rt, store); ok {
		require.NoError(t, store.Delete(pod))
	}
}

func changeVPA(rt *rapid.T, t *testing.T, store cache.Store) {
	known, ok := randomObject[*vpav1.VerticalPodAutoscaler](rt, store)
	if !ok {
		return
	}
	vpa := known.DeepCopy()
	c := &vpa.Status.Recommendation.ContainerRecommendations[0]
	c.LowerBound = list(fmt.Sprintf("%dm", rapid.IntRange(10, 200).Draw(rt, "base")), "100Mi")
	delete(vpa.Annotations, recipe.Annotation)
	if rapid.Bool().Draw(rt, "another recipe") {
		vpa.Annotations = map[string]string{recipe.Annotation: rapid.SampledFrom([]string{"vpa", "loadline:cpu=shared"}).Draw(rt, "recipe")}
	}
	require.NoError(t, store.Update(vpa))
}

// changeRivalVPA adds a user VPA to a workload with a generated one, or deletes a VPA.
func changeRivalVPA(rt *rapid.T, t *testing.T, store cache.Store) {
	known, ok := randomObject[*vpav1.VerticalPodAutoscaler](rt, store)
	if !ok {
		return
	}
	if rapid.Bool().Draw(rt, "away") {
		require.NoError(t, store.Delete(known))
		return
	}
	vpa := known.DeepCopy()
	vpa.Name, vpa.Labels = "person-"+known.Name, nil
	vpa.Annotations = map[string]string{recipe.Annotation: rapid.SampledFrom([]string{"vpa", "cruisekube"}).Draw(rt, "its recipe")}
	require.NoError(t, store.Update(vpa))
}

func changeNode(rt *rapid.T, t *testing.T, store cache.Store) {
	known, ok := randomObject[*corev1.Node](rt, store)
	if !ok {
		return
	}
	n := known.DeepCopy()
	switch rapid.IntRange(0, 3).Draw(rt, "what") {
	case 0:
		n.Status.Allocatable = list(fmt.Sprintf("%dm", rapid.IntRange(0, 2000).Draw(rt, "cpu")), "10000Gi")
	case 1:
		n.Spec.Unschedulable = !n.Spec.Unschedulable
	case 2:
		n.Status.NodeInfo.KubeletVersion = "v1.32.1"
	case 3:
		require.NoError(t, store.Delete(n))
		return
	}
	require.NoError(t, store.Update(n))
}

// A round rereads only changed pods and recomputes everything else.
func TestShare_AllocatesPerPod(t *testing.T) {
	loop, _ := steadyCluster{vpas: 400, pods: 5, nodes: 100, policies: sharedEverywhere()}.loop(t)
	it, err := loop.read(t.Context(), noon, func(string) {})
	require.NoError(t, err)
	require.LessOrEqual(t, testing.AllocsPerRun(5, func() {
		_, err := loop.shareRounds.Sharing.RunRound(t.Context(), it.input(), noon, shares.SharingStates{})
		require.NoError(t, err)
	}), 7.0*2000, "2000 pods on 100 nodes")
}
