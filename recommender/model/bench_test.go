package model

import (
	"fmt"
	"math"
	"math/rand"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

// cluster has Deployments with VPAs and 5 pods of 2 containers each.
type cluster struct {
	vpas, namespaces int
	model            *Model
	store            *usage.Store
	keys             []usage.ContainerKey
	scale            []float32
	rand             *rand.Rand
	at               time.Time
}

func newCluster(containers, namespaces int) *cluster {
	m, store := newModel(Config{})
	return &cluster{vpas: containers / 10, namespaces: namespaces, model: m, store: store, rand: rand.New(rand.NewSource(1)), at: now()}
}

func (c *cluster) namespace(i int) string { return fmt.Sprint("team-", i%c.namespaces) }

func app(i int) labels.Set {
	return labels.Set{"app.kubernetes.io/name": fmt.Sprint("service-", i), "app.kubernetes.io/instance": fmt.Sprint("service-", i), "app.kubernetes.io/part-of": "shop"}
}

// observed returns VPAs as from an informer, each with its own strings.
func (c *cluster) observed() (list []Observed) {
	mode := vpav1.UpdateModeRecreate
	quantity := func(i int, unit string) resource.Quantity { return resource.MustParse(fmt.Sprint(100+i, unit)) }
	for i := range c.vpas {
		target := vpav1.RecommendedPodResources{}
		for _, name := range []string{"server", "proxy"} {
			values := func() corev1.ResourceList {
				return corev1.ResourceList{corev1.ResourceCPU: quantity(i, "m"), corev1.ResourceMemory: quantity(i, "Mi")}
			}
			target.ContainerRecommendations = append(target.ContainerRecommendations, vpav1.RecommendedContainerResources{
				ContainerName: name, Target: values(), LowerBound: values(), UpperBound: values(), UncappedTarget: values()})
		}
		trimmed, err := client.Trim(
			&vpav1.VerticalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace(i), Name: fmt.Sprint("service-", i), UID: types.UID(fmt.Sprintf("7f1c6a52-0000-4000-8000-%012d", i)),
					ResourceVersion: fmt.Sprint(1000000 + i), Labels: app(i), CreationTimestamp: metav1.NewTime(now())},
				Spec: vpav1.VerticalPodAutoscalerSpec{
					TargetRef:    &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprint("service-", i)},
					UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &mode},
				},
				Status: vpav1.VerticalPodAutoscalerStatus{Recommendation: &target},
			})
		if err != nil {
			panic(err)
		}
		list = append(list, Observed{Object: trimmed.(*vpav1.VerticalPodAutoscaler), Selector: labels.SelectorFromSet(app(i))})
	}
	return list
}

func (c *cluster) pods(f func(*corev1.Pod)) {
	for i := range c.vpas {
		for j := range 5 {
			set := app(i)
			set["pod-template-hash"] = fmt.Sprintf("%09d", i)
			pod := aPod(fmt.Sprintf("service-%d-%09d-%05d", i, i, j), set, "server", "proxy")
			pod.Namespace = c.namespace(i)
			trimmed, err := client.Trim(pod)
			if err != nil {
				panic(err)
			}
			f(trimmed.(*corev1.Pod))
		}
	}
}

func (c *cluster) fill() {
	c.model.SyncVPAs(c.observed(), c.at)
	c.pods(func(p *corev1.Pod) {
		c.model.PutPod(p, c.at)
		for i := range p.Spec.Containers {
			c.keys = append(c.keys, usage.ContainerKey{Namespace: p.Namespace, Pod: p.Name, Container: p.Spec.Containers[i].Name})
			c.scale = append(c.scale, float32(math.Exp(c.rand.NormFloat64())))
		}
	})
}

// tick adds CPU and memory samples of all containers, with log-normal noise and a daily cycle.
func (c *cluster) tick(step time.Duration) {
	c.at = c.at.Add(step)
	day := 1 + 0.5*math.Sin(float64(c.at.Unix())/86400*2*math.Pi)
	for i, key := range c.keys {
		noise := day * math.Exp(c.rand.NormFloat64()/4) * float64(c.scale[i])
		c.store.Observe(usage.Sample{Container: key, Kind: resources.CPU, At: c.at, Amount: resources.Amount(200 * noise)})
		c.store.Observe(usage.Sample{Container: key, Kind: resources.Memory, At: c.at, Amount: resources.Amount(3e8 * noise)})
	}
}

func runForSizes(b *testing.B, run func(b *testing.B, containers int)) {
	for _, n := range []int{1000, 10000, 100000} {
		b.Run(fmt.Sprint("containers=", n), func(b *testing.B) {
			b.ReportAllocs()
			run(b, n)
		})
	}
}

// BenchmarkIngest adds one CPU and one memory sample per container, after a day of samples.
func BenchmarkIngest(b *testing.B) {
	runForSizes(b, func(b *testing.B, n int) {
		c := newCluster(n, 100)
		c.fill()
		for range 24 * 12 {
			c.tick(5 * time.Minute)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.ResetTimer()
		for range b.N {
			c.tick(time.Minute)
		}
		b.StopTimer()
		runtime.ReadMemStats(&after)
		samples := float64(b.N) * float64(n) * 2
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/samples, "ns/sample")
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/samples*1000, "allocs/1000-samples")
	})
}

// BenchmarkAddPods adds all pods to existing VPAs.
func BenchmarkAddPods(b *testing.B) {
	for _, namespaces := range []int{1, 100} {
		b.Run(fmt.Sprint("namespaces=", namespaces), func(b *testing.B) {
			runForSizes(b, func(b *testing.B, n int) { benchmarkAddPods(b, n, namespaces, true) })
		})
	}
}

// BenchmarkAddVPAs adds all VPAs to existing pods.
func BenchmarkAddVPAs(b *testing.B) {
	for _, namespaces := range []int{1, 100} {
		b.Run(fmt.Sprint("namespaces=", namespaces), func(b *testing.B) {
			runForSizes(b, func(b *testing.B, n int) { benchmarkAddPods(b, n, namespaces, false) })
		})
	}
}

func benchmarkAddPods(b *testing.B, n, namespaces int, podsLast bool) {
	c := newCluster(n, namespaces)
	list := c.observed()
	var pods []*corev1.Pod
	c.pods(func(p *corev1.Pod) { pods = append(pods, p) })
	put := func() {
		for _, p := range pods {
			c.model.PutPod(p, c.at)
		}
	}
	sync := func() { c.model.SyncVPAs(list, c.at) }
	first, last := sync, put
	if !podsLast {
		first, last = put, sync
	}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		c.model, c.store = newModel(Config{})
		first()
		runtime.GC()
		b.StartTimer()
		last()
	}
	b.StopTimer()
	require.Equal(b, 5, c.model.VPAs()[0].Pods())
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(pods)), "ns/pod")
}

func BenchmarkSyncUnchanged(b *testing.B) {
	runForSizes(b, func(b *testing.B, n int) {
		c := newCluster(n, 100)
		c.fill()
		list := c.observed()
		c.model.SyncVPAs(list, c.at)
		b.ResetTimer()
		for range b.N {
			c.model.SyncVPAs(list, c.at)
			for _, v := range c.model.VPAs() {
				v.Revision()
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.vpas), "ns/VPA")
	})
}

// BenchmarkHeap reports the heap of store and model after a day of one sample a minute.
func BenchmarkHeap(b *testing.B) {
	runForSizes(b, func(b *testing.B, n int) {
		for range b.N {
			start := heap()
			c := newCluster(n, 100)
			c.fill()
			filled := heap()
			for range 24 * 60 {
				c.tick(time.Minute)
			}
			c.model.Expire(c.at)
			held := heap()
			c.keys, c.scale = nil, nil
			b.ReportMetric((heap()-start)/(1<<20), "MiB")
			b.ReportMetric((held-filled)/(1<<20), "MiB-of-histograms")
			runtime.KeepAlive(c)
		}
	})
}
