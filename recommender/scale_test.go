package recommender

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/recommender/checkpoints"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
	"loadline.dev/loadline/recommender/status"
)

const (
	podsPerVPA       = 5
	containersPerPod = 2
)

// simulatedFleet has VPAs with steady usage and counts writes.
type simulatedFleet struct {
	now       time.Time
	store     *usage.Store
	model     *model.Model
	advisor   *recommend.Advisor
	publisher *recommend.Publisher
	saver     *checkpoints.Saver
	random    *rand.Rand

	observed []model.Observed
	keys     []usage.ContainerKey

	mu     sync.Mutex
	fresh  map[string]*vpav1.VerticalPodAutoscaler // written since the last iteration
	writes int
}

func newFleet(tb testing.TB, containers int) *simulatedFleet {
	config := usage.DefaultConfig()
	chains := recipe.VPA(recipe.DefaultConfig())
	f := &simulatedFleet{now: start(), store: usage.NewStore(config), random: rand.New(rand.NewPCG(1, 2)), fresh: map[string]*vpav1.VerticalPodAutoscaler{}}
	f.model = model.NewModel(model.Config{Store: f.store})
	c := Default()
	f.advisor = &recommend.Advisor{Store: f.store, Shape: config.Shape, Recipe: chains, Format: c.Output.Format()}
	server := vpafake.NewSimpleClientset()
	server.PrependReactor("*", "*", f.handleWrite)
	m := newMetrics(prometheus.NewRegistry())
	f.publisher = &recommend.Publisher{
		Advisor: f.advisor, Checkpoints: &checkpoints.Maintainer{Disabled: true}, Writer: status.Writer{Client: server}, Quality: m.quality,
		Workers: c.Workers, Tolerance: c.Output.Tolerance, Latency: m.latency, Results: m.statuses,
	}
	f.saver = checkpoints.NewSaver(checkpoints.Config{
		Client: server, Lister: listers.NewVerticalPodAutoscalerCheckpointLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})),
		Workers: c.Workers, Interval: c.Checkpoints.Interval, Timeout: time.Hour, Advisor: f.advisor,
	})
	for i := range containers / podsPerVPA / containersPerPod {
		f.add(i)
	}
	f.model.SyncVPAs(f.observed, f.now)
	return f
}

func (f *simulatedFleet) add(i int) {
	namespace, name := fmt.Sprint("ns-", i%100), fmt.Sprint("app-", i)
	set := labels.Set{"app": name}
	for p := range podsPerVPA {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(name, "-", p), Labels: set}}
		for c := range containersPerPod {
			container := fmt.Sprint("c", c)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container})
			f.keys = append(f.keys, usage.ContainerKey{Namespace: namespace, Pod: pod.Name, Container: container})
		}
		f.model.PutPod(pod, f.now)
	}
	f.observed = append(f.observed, model.Observed{Selector: labels.SelectorFromSet(set), Object: &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1},
		Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}},
	}})
}

func (f *simulatedFleet) handleWrite(a clienttesting.Action) (bool, runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	patch, ok := a.(clienttesting.PatchAction)
	if !ok || patch.GetSubresource() != "status" {
		return true, &vpav1.VerticalPodAutoscalerCheckpoint{}, nil
	}
	var steps []struct {
		Value vpav1.VerticalPodAutoscalerStatus `json:"value"`
	}
	if err := json.Unmarshal(patch.GetPatch(), &steps); err != nil {
		return true, nil, err
	}
	object := f.model.Find(patch.GetNamespace(), patch.GetName()).Object.DeepCopy()
	object.Status = steps[0].Value
	f.fresh[object.Name] = object
	return true, object, nil
}

func (f *simulatedFleet) addSamples(step time.Duration) {
	f.now = f.now.Add(step)
	for i, key := range f.keys {
		noise := 1 + 0.1*f.random.NormFloat64()
		usual := 1 + i%97
		f.store.Observe(usage.Sample{Container: key, Kind: resources.CPU, At: f.now, Amount: resources.FromFloat(max(float64(10*usual)*noise, 0))})
		f.store.Observe(usage.Sample{Container: key, Kind: resources.Memory, At: f.now, Amount: resources.FromFloat(max(float64(usual<<24)*noise, 0))})
	}
}

// iterate returns the number of writes.
func (f *simulatedFleet) iterate(tb testing.TB) int {
	for i, o := range f.observed {
		if object := f.fresh[o.Object.Name]; object != nil {
			f.observed[i].Object = object
		}
	}
	clear(f.fresh)
	f.model.SyncVPAs(f.observed, f.now)
	before := f.writes
	f.publisher.Publish(tb.Context(), f.model.VPAs(), f.now, time.Minute)
	f.saver.Save(tb.Context(), f.model.VPAs(), checkpoints.Due, f.now, time.Hour)
	return f.writes - before
}

func runForSizes(b *testing.B, run func(b *testing.B, containers int)) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint("containers=", n), func(b *testing.B) { run(b, n) })
	}
}

func BenchmarkRecommendations(b *testing.B) {
	runForSizes(b, func(b *testing.B, n int) {
		f := newFleet(b, n)
		for range 30 {
			f.addSamples(time.Hour)
		}
		f.iterate(b)
		f.iterate(b)
		vpas := f.model.VPAs()
		b.Run("new", func(b *testing.B) {
			b.ReportAllocs()
			scratch := usage.NewProfile(f.advisor.Shape)
			for b.Loop() {
				for _, v := range vpas {
					f.advisor.Advise(v, f.advisor.Estimates(v, &scratch, nil))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(vpas)), "ns/vpa")
		})
		b.Run("idle", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.publisher.Publish(b.Context(), vpas, f.now, time.Minute)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(vpas)), "ns/vpa")
		})
	})
}

func BenchmarkCheckpointsUnchanged(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint("vpas=", n), func(b *testing.B) {
			f := newFleet(b, n*podsPerVPA*containersPerPod)
			f.addSamples(time.Minute)
			f.iterate(b)
			f.iterate(b)
			vpas, before := f.model.VPAs(), f.writes
			b.ReportAllocs()
			for b.Loop() {
				f.saver.Save(b.Context(), vpas, checkpoints.Due, f.now.Add(time.Hour), time.Hour)
			}
			require.Equal(b, before, f.writes)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/vpa")
		})
	}
}

// BenchmarkWritesPerPass compares with the reference recommender, which would write every
// checkpoint and every changed status.
func BenchmarkWritesPerPass(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint("vpas=", n), func(b *testing.B) {
			f := newFleet(b, n*podsPerVPA*containersPerPod)
			for range 36 * 60 {
				f.addSamples(time.Minute)
			}
			for range 45 { // all published and saved, none young
				f.addSamples(time.Minute)
				f.iterate(b)
			}
			last := map[string][]status.Recommended{}
			scratch := usage.NewProfile(f.advisor.Shape)
			writes, reference := 0, 0
			for b.Loop() {
				f.addSamples(time.Minute)
				b.StopTimer()
				for _, v := range f.model.VPAs() {
					now := f.advisor.Advise(v, f.advisor.Estimates(v, &scratch, nil)).Recommendation
					if before := last[v.Object.Name]; before != nil && !equality.Semantic.DeepEqual(before, now) {
						reference++
					}
					last[v.Object.Name] = now
				}
				reference += n * containersPerPod
				b.StartTimer()
				writes += f.iterate(b)
			}
			b.ReportMetric(float64(writes)/float64(b.N), "writes/pass")
			b.ReportMetric(float64(reference)/float64(b.N), "reference-writes/pass")
			b.ReportMetric(float64(writes)/float64(reference), "ratio")
		})
	}
}

func TestSteadyState_WritesTenthOfReference(t *testing.T) {
	const vpas, passes = 100, 30
	f := newFleet(t, vpas*podsPerVPA*containersPerPod)
	for range 36 * 60 {
		f.addSamples(time.Minute)
	}
	for range 45 {
		f.addSamples(time.Minute)
		f.iterate(t)
	}
	writes := 0
	for range passes {
		f.addSamples(time.Minute)
		writes += f.iterate(t)
	}
	reference := vpas * (containersPerPod + 1) * passes // nearly every status has new bounds
	require.LessOrEqual(t, writes*10, reference)
	idle := f.writes
	for range 5 {
		f.now = f.now.Add(time.Minute)
		f.iterate(t)
	}
	require.LessOrEqual(t, f.writes-idle, vpas*containersPerPod, "what was put off is written, and no more")
}
