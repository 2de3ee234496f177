package recommend

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"

	"loadline.dev/loadline/recommender/model"
)

// 100,000 containers in pods of two containers.
const (
	vpas       = 10_000
	podsPerVPA = 5
)

func manyWorkloads(tb testing.TB) *qualityFixture {
	s := newQualityFixture(tb)
	for i := range vpas {
		name := fmt.Sprintf("web-%d", i)
		object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
			target("app", "1", "1Gi"), target("log", "1", "1Gi")}}
		s.objects = append(s.objects, model.Observed{Object: object, Selector: labels.SelectorFromSet(labels.Set{"app": name})})
		for p := range podsPerVPA {
			s.model.PutPod(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("%s-%d", name, p), Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "log"}}},
			}, s.now)
		}
	}
	s.advance(0)
	s.addIterationSamples()
	s.advance(time.Minute)
	return s
}

func (s *qualityFixture) addIterationSamples() {
	for _, v := range s.model.VPAs() {
		for range podsPerVPA {
			for _, container := range []string{"app", "log"} {
				for k := range resources.Kind(resources.Kinds) {
					s.Observe(v, container, k, 500)
				}
			}
		}
	}
}

func TestWorkloadQuality_ObserveDoesNotAllocate(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "1", "1Gi"))
	require.Zero(t, testing.AllocsPerRun(100, func() { s.addSamples("app", resources.CPU, 5) }))
}

// BenchmarkQualityIteration adds 200,000 samples. The case read has a concurrent reader, and
// longest-ms is the longest delay of one sample.
func BenchmarkQualityIteration(b *testing.B) {
	for _, read := range []bool{false, true} {
		b.Run(map[bool]string{false: "alone", true: "read"}[read], func(b *testing.B) {
			s := manyWorkloads(b)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for read {
					select {
					case <-stop:
						return
					default:
						_, _ = s.registry.Gather() // tests check errors
					}
				}
			}()
			var longest time.Duration
			b.ReportAllocs()
			for b.Loop() {
				s.Follow(s.model, s.store, s.now)
				s.addIterationSamples()
				b.StopTimer()
				v := s.model.VPAs()[0]
				for range 1000 {
					began := time.Now()
					s.Observe(v, "app", resources.CPU, 500)
					longest = max(longest, time.Since(began))
				}
				b.StartTimer()
			}
			close(stop)
			<-stopped
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}

func BenchmarkQualityFollow(b *testing.B) {
	s := manyWorkloads(b)
	b.ReportAllocs()
	for b.Loop() {
		s.Follow(s.model, s.store, s.now)
	}
}

func BenchmarkQualityCollect(b *testing.B) {
	s := manyWorkloads(b)
	b.ReportMetric(float64(testutil.CollectAndCount(s.WorkloadQuality)), "series")
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.registry.Gather()
		require.NoError(b, err)
	}
	b.ReportMetric(float64(testutil.CollectAndCount(s.WorkloadQuality)), "series")
}
