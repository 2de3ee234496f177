package recommend

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

type qualityFixture struct {
	*WorkloadQuality
	t        testing.TB
	registry *prometheus.Registry
	store    *usage.Store
	model    *model.Model
	now      time.Time
	objects  []model.Observed
}

func newQualityFixture(t testing.TB) *qualityFixture {
	s := &qualityFixture{t: t, registry: prometheus.NewRegistry(), store: usage.NewStore(usage.DefaultConfig()), now: time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)}
	s.model = model.NewModel(model.Config{Store: s.store})
	s.WorkloadQuality = NewWorkloadQuality(s.registry)
	return s
}

func target(container, cpu, memory string) vpav1.RecommendedContainerResources {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			list[name] = resource.MustParse(text)
		}
	}
	return vpav1.RecommendedContainerResources{ContainerName: container, Target: list, UncappedTarget: corev1.ResourceList{"cpu": resource.MustParse("99")}}
}

func (s *qualityFixture) publish(targets ...vpav1.RecommendedContainerResources) {
	object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	if targets != nil {
		object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: targets}
	}
	s.objects = []model.Observed{{Object: object, Selector: labels.Everything()}}
	s.advance(0)
}

func (s *qualityFixture) advance(later time.Duration) {
	s.now = s.now.Add(later)
	s.model.SyncVPAs(s.objects, s.now)
	s.Follow(s.model, s.store, s.now)
}

func (s *qualityFixture) addSamples(container string, k resources.Kind, samples ...resources.Amount) {
	for _, used := range samples {
		s.Observe(s.model.Find("shop", "web"), container, k, used)
	}
}

// requireSeries compares the series of a metric, each as "container/resource=value".
func (s *qualityFixture) requireSeries(name string, want ...string) {
	s.t.Helper()
	families, err := s.registry.Gather()
	require.NoError(s.t, err)
	var got []string
	for _, f := range families {
		if f.GetName() != "loadline_workload_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			l := map[string]string{}
			for _, pair := range m.GetLabel() {
				l[pair.GetName()] = pair.GetValue()
			}
			require.Equal(s.t, [2]string{"shop", "web"}, [2]string{l["namespace"], l["vpa"]})
			got = append(got, fmt.Sprintf("%s/%s=%.6g", l["container"], l["resource"], m.GetGauge().GetValue()))
		}
	}
	require.Equal(s.t, want, got, name)
}

func TestWorkloadQuality_ComputesMetrics(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "500m", "400"))
	s.addSamples("app", resources.CPU, 200, 500, 700, 100)
	s.addSamples("app", resources.Memory, 100, 300)
	s.Killed(s.model.Find("shop", "web"), "app")
	s.advance(90 * time.Second)
	s.requireSeries("recommendation", "app/cpu=0.5", "app/memory=400")
	s.requireSeries("slack_ratio", "app/cpu=0.25", "app/memory=0.5")
	s.requireSeries("samples_above_target_ratio", "app/cpu=0.25", "app/memory=0")
	s.requireSeries("peak_ratio", "app/cpu=1.4", "app/memory=0.75")
	s.requireSeries("ooms_since_change", "app/memory=1")
	s.requireSeries("recommendation_age_seconds", "app/cpu=90", "app/memory=90")
	s.requireSeries("history_completeness_ratio", "app/cpu=0", "app/memory=0")
	s.requireSeries("last_change_ratio")
}

func TestWorkloadQuality_ResetsResourceOnNewTarget(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "500m", "400"))
	s.addSamples("app", resources.CPU, 1000)
	s.addSamples("app", resources.Memory, 300)
	s.Killed(s.model.Find("shop", "web"), "app")
	s.now = s.now.Add(time.Minute)
	s.publish(target("app", "750m", "400"))
	s.requireSeries("last_change_ratio", "app/cpu=0.5")
	s.requireSeries("recommendation_age_seconds", "app/cpu=0", "app/memory=60")
	s.requireSeries("samples_above_target_ratio", "app/memory=0")
	s.requireSeries("slack_ratio", "app/memory=0.25")
	s.requireSeries("ooms_since_change", "app/memory=1")
	s.publish(target("app", "0.75", "200"))
	s.addSamples("app", resources.CPU, 1500)
	s.requireSeries("last_change_ratio", "app/cpu=0.5", "app/memory=-0.5")
	s.requireSeries("ooms_since_change", "app/memory=0")
	s.requireSeries("slack_ratio", "app/cpu=-1")
}

func TestWorkloadQuality_DropsSeriesOfRemovedObjects(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "500m", "400"), target("log", "1m", "2"))
	s.addSamples("app", resources.CPU, 1000)
	s.publish(target("app", "", "400"))
	s.requireSeries("recommendation", "app/memory=400")
	s.addSamples("app", resources.CPU, 1000)
	s.publish(target("app", "500m", "400"))
	s.requireSeries("samples_above_target_ratio")
	s.publish()
	s.requireSeries("recommendation")

	s.publish(target("app", "500m", "400"))
	s.objects = nil
	gone := s.model.Find("shop", "web")
	s.advance(time.Minute)
	s.Observe(gone, "app", resources.CPU, 1)
	s.Killed(gone, "app")
	require.Zero(t, testutil.CollectAndCount(s.WorkloadQuality))
	require.Empty(t, s.workloads)
}

func TestWorkloadQuality_IgnoresUsageWithoutTarget(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "500m", ""))
	s.addSamples("other", resources.CPU, 1)
	s.addSamples("app", resources.Memory, 1)
	s.Observe(nil, "app", resources.CPU, 1)
	s.Killed(s.model.Find("shop", "web"), "app")
	s.requireSeries("samples_above_target_ratio")
	s.requireSeries("ooms_since_change")
}

func TestWorkloadQuality_OmitsRatiosOfZeroTarget(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "0", ""))
	s.addSamples("app", resources.CPU, 1, 0)
	s.requireSeries("recommendation", "app/cpu=0")
	s.requireSeries("samples_above_target_ratio", "app/cpu=0.5")
	s.requireSeries("slack_ratio")
	s.requireSeries("peak_ratio")
	s.publish(target("app", "1", ""))
	s.requireSeries("last_change_ratio")
}

func TestWorkloadQuality_ResetsOnRetarget(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "1", ""))
	s.addSamples("app", resources.CPU, 500)
	s.requireSeries("slack_ratio", "app/cpu=0.5")
	other := s.objects[0].Object.DeepCopy()
	other.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"}
	s.objects[0].Object = other
	s.advance(time.Minute)
	s.requireSeries("slack_ratio")
	s.requireSeries("recommendation_age_seconds", "app/cpu=0")
}

// Any user may be able to edit a status. Duplicate series would make all metrics unreadable.
func TestWorkloadQuality_DeduplicatesContainers(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "1", ""), target("app", "2", ""))
	s.requireSeries("recommendation", "app/cpu=1")
}

func TestWorkloadQuality_ComputesHistoryCompleteness(t *testing.T) {
	s := newQualityFixture(t)
	s.model.PutPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}, s.now)
	s.publish(target("app", "1", ""))
	sample := func() {
		require.Equal(t, usage.Accepted, s.store.Observe(usage.Sample{
			Container: usage.ContainerKey{Namespace: "shop", Pod: "web-1", Container: "app"}, At: s.now, Amount: 5}))
	}
	sample()
	s.advance(4 * 24 * time.Hour)
	s.requireSeries("history_completeness_ratio", "app/cpu=0")
	sample()
	s.advance(0)
	s.requireSeries("history_completeness_ratio", "app/cpu=0.000173611") // two minutes of eight days

	v := s.model.Find("shop", "web")
	restored := usage.NewProfile(usage.DefaultConfig().Shape)
	require.NoError(t, restored.Load(usage.ProfileImage{First: s.now.Add(-6 * 24 * time.Hour), Last: s.now.Add(-time.Hour), Samples: 1e6}))
	v.Restored = map[string]*usage.Profile{"app": &restored}
	s.advance(0)
	s.requireSeries("history_completeness_ratio", "app/cpu=0.75")
	s.advance(24 * time.Hour)
	s.requireSeries("history_completeness_ratio", "app/cpu=0.75")
	s.advance(4 * 24 * time.Hour)
	sample()
	s.advance(0)
	s.requireSeries("history_completeness_ratio", "app/cpu=1")
}

func TestWorkloadQuality_NilDoesNotAllocate(t *testing.T) {
	var none *WorkloadQuality
	v := &model.VPA{}
	require.Zero(t, testing.AllocsPerRun(10, func() {
		none.Follow(nil, nil, time.Time{})
		none.Observe(v, "app", resources.CPU, 1)
		none.Killed(v, "app")
	}))
}

func TestWorkloadQuality_MetricsHaveNoLintProblems(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "500m", "400"))
	s.publish(target("app", "600m", "500"))
	s.addSamples("app", resources.CPU, 1)
	s.addSamples("app", resources.Memory, 1)
	require.Equal(t, 15, testutil.CollectAndCount(s.WorkloadQuality))
	problems, err := testutil.GatherAndLint(s.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestWorkloadQuality_EscapesLabels(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("a\"\\\nb", "1", ""))
	require.NoError(t, testutil.GatherAndCompare(s.registry, strings.NewReader(`
# HELP loadline_workload_recommendation Published target, after capping, in cores or bytes.
# TYPE loadline_workload_recommendation gauge
loadline_workload_recommendation{container="a\"\\\nb",namespace="shop",resource="cpu",vpa="web"} 1
`), "loadline_workload_recommendation"))
}

func TestWorkloadQuality_MatchesDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/quality-metrics.md")
	require.NoError(t, err)
	_, rest, found := bytes.Cut(page, []byte("```text\n"))
	require.True(t, found)
	example, _, _ := bytes.Cut(rest, []byte("```"))
	s := newQualityFixture(t)
	restored := usage.NewProfile(usage.DefaultConfig().Shape)
	require.NoError(t, restored.Load(usage.ProfileImage{First: s.now.Add(-6 * 24 * time.Hour), Last: s.now, Samples: 1e6}))
	s.publish(target("app", "400m", "256Mi"))
	s.model.Find("shop", "web").Restored = map[string]*usage.Profile{"app": &restored}
	s.publish(target("app", "500m", "320Mi"))
	s.addSamples("app", resources.CPU, 200, 300, 700, 300)
	s.addSamples("app", resources.Memory, 200<<20, 240<<20, 280<<20, 240<<20)
	s.Killed(s.model.Find("shop", "web"), "app")
	s.advance(4 * time.Minute)
	require.NoError(t, testutil.GatherAndCompare(s.registry, bytes.NewReader(example)))
}

// The race detector finds reads without the lock.
func TestWorkloadQuality_CollectsDuringIteration(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "1", "1"))
	const name = "loadline_workload_recommendation" // one series for CPU and one for memory in each iteration
	var readers sync.WaitGroup
	stop, counts := make(chan struct{}), make(chan int)
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			case counts <- testutil.CollectAndCount(s.WorkloadQuality, name):
			}
		}
	})
	for i := range 200 {
		s.publish(target("app", fmt.Sprint(i%2+1), "1"))
		s.addSamples("app", resources.CPU, resources.Amount(i))
		require.Equal(t, 2, <-counts)
	}
	close(stop)
	readers.Wait()
}

func TestWorkloadQuality_ReportsBurstsAndConfidence(t *testing.T) {
	s := newQualityFixture(t)
	s.publish(target("app", "500m", "400"))
	s.requireSeries("burst_factor")
	s.requireSeries("confidence_ratio")

	v := s.model.Find("shop", "web")
	book, err := recipe.NewCache("attune", recipe.DefaultConfig())
	require.NoError(t, err)
	v.Recipe = book.ForAnnotation("")
	history := sketch.New(v.Recipe.Needs)
	for i := range 120 {
		used := resources.Amount(100)
		if i == 0 {
			used = 1600
		}
		history.Observe(s.now.Add(time.Duration(i)*5*time.Minute), resources.CPU, used, 0)
		history.Observe(s.now.Add(time.Duration(i)*5*time.Minute), resources.Memory, 100, 0)
	}
	v.Sketches = map[string]*sketch.Sketch{"app": history}
	s.advance(time.Minute)
	s.requireSeries("burst_factor", "app/cpu=1.4", "app/memory=1")
	confidence := history.Points[resources.CPU].Profile().Confidence
	require.Positive(t, confidence)
	s.requireSeries("confidence_ratio", fmt.Sprintf("app/cpu=%.6g", confidence), fmt.Sprintf("app/memory=%.6g", confidence))
}
