package compat

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	reference "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"

	"loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
	"loadline.dev/loadline/recommender/status"
)

type loadline struct {
	store   *usage.Store
	model   *model.Model
	advisor *recommend.Advisor
	scratch usage.Profile

	// Set by connect, for benchmarks.
	observed  []model.Observed
	server    *loadlineServer
	publisher *recommend.Publisher
}

func newLoadline(t testing.TB, o options) *loadline {
	config := usage.StoreConfig{
		Shape: usage.NewProfileShape(o.aggregation.CPUHistogramDecayHalfLife, o.aggregation.MemoryHistogramDecayHalfLife),
		Rules: usage.Rules{
			OOMRatio: o.aggregation.OOMBumpUpRatio, OOMMinBump: resources.FromFloat(o.aggregation.OOMMinBumpUp),
			Interval: o.aggregation.MemoryAggregationIntervalDuration, Count: o.aggregation.MemoryAggregationIntervalCount,
		},
	}
	e := recipe.Config{
		Target:     [resources.Kinds]float64{o.estimate.TargetCPUPercentile, o.estimate.TargetMemoryPercentile},
		Lower:      [resources.Kinds]float64{o.estimate.LowerBoundCPUPercentile, o.estimate.LowerBoundMemoryPercentile},
		Upper:      [resources.Kinds]float64{o.estimate.UpperBoundCPUPercentile, o.estimate.UpperBoundMemoryPercentile},
		Margin:     o.estimate.SafetyMarginFraction,
		Confidence: [resources.Kinds]time.Duration{o.estimate.ConfidenceIntervalCPU, o.estimate.ConfidenceIntervalMemory},
		PodMinCPU:  o.estimate.PodMinCPUMillicores, PodMinMemory: o.estimate.PodMinMemoryMb,
	}
	recipe := recipe.VPA(e)
	store := usage.NewStore(config)
	return &loadline{
		store: store,
		model: model.NewModel(model.Config{Store: store, PerVPA: true}),
		advisor: &recommend.Advisor{
			Store: store, Shape: config.Shape, Recipe: recipe,
			Format: convert.Format{CPUStep: int64(o.format.RoundCPUMillicores), MemoryStep: int64(o.format.RoundMemoryBytes), HumanizeMemory: o.format.HumanizeMemory},
			Limits: recommend.OutputLimits{IntegerCPU: o.integerCPU, MaxAllowed: o.maxAllowed},
		},
		scratch: usage.NewProfile(config.Shape),
	}
}

func kindOf(r reference.ResourceName) resources.Kind {
	if r == reference.ResourceCPU {
		return resources.CPU
	}
	return resources.Memory
}

func (l *loadline) take(begin, now time.Time, p vpaPlan, e event) {
	container := usage.ContainerKey{Namespace: p.namespace, Pod: e.pod, Container: e.container}
	switch e.kind {
	case appears:
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: e.pod, Labels: e.labels}}
		for _, name := range e.names {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		}
		pod.Status.Phase = corev1.PodRunning
		l.model.PutPod(pod, now)
	case vanishes:
		l.model.RemovePod(p.namespace, e.pod)
	case uses:
		l.store.Observe(usage.Sample{Container: container, Kind: kindOf(e.resource), At: begin.Add(e.sampled), Amount: resources.Amount(e.amount)})
	case killed:
		// Without limit and container ID a kill counts as it does upstream.
		l.store.ObserveOOM(usage.OOM{Container: container, At: begin.Add(e.sampled), Memory: resources.Amount(e.amount)})
	}
}

func (l *loadline) see(t *testing.T, plans []vpaPlan, objects map[int]*upstreamv1.VerticalPodAutoscaler, mirror map[*upstreamv1.VerticalPodAutoscaler]*v1.VerticalPodAutoscaler, now time.Time) {
	var seen []model.Observed
	for i, object := range objects {
		if mirror[object] == nil {
			mirror[object] = through[v1.VerticalPodAutoscaler](t, object)
		}
		seen = append(seen, model.Observed{Object: mirror[object], Selector: plans[i].selector()})
	}
	l.model.SyncVPAs(seen, now)
}

func (l *loadline) build(v *model.VPA) []status.Recommended {
	return l.advisor.Advise(v, l.advisor.Estimates(v, &l.scratch, nil)).Recommendation
}

// clean drops old histories. It first adds a sample of an unrelated pod, because Loadline, unlike
// upstream, drops nothing while no samples arrive.
func (l *loadline) clean(now time.Time) {
	heart := usage.ContainerKey{Namespace: "elsewhere", Pod: "heart", Container: "beat"}
	l.store.Track(heart, usage.SeriesKey{Namespace: heart.Namespace, Container: heart.Container}, now)
	l.store.Observe(usage.Sample{Container: heart, At: now, Amount: 1})
	l.model.Expire(now)
}

func (l *loadline) recommend(p vpaPlan) []upstreamv1.RecommendedContainerResources {
	var list []upstreamv1.RecommendedContainerResources
	for _, c := range l.build(l.model.Find(p.namespace, p.name)) {
		list = append(list, upstreamv1.RecommendedContainerResources(c))
	}
	return list
}

func (l *loadline) save(t *testing.T, plans []vpaPlan, now time.Time) storedCheckpoints {
	saved := storedCheckpoints{}
	for _, p := range plans {
		v := l.model.Find(p.namespace, p.name)
		if v == nil {
			continue
		}
		for container, content := range l.advisor.Contents(v, now) {
			c := &v1.VerticalPodAutoscalerCheckpoint{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name + "-" + container},
				Spec:       v1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: p.name, ContainerName: container},
				Status:     checkpoint.Status(content.Image, now),
			}
			saved[p.namespace+"/"+c.Name] = through[upstreamv1.VerticalPodAutoscalerCheckpoint](t, c)
		}
	}
	return saved
}

func (l *loadline) load(t *testing.T, p vpaPlan, saved storedCheckpoints) {
	v := l.model.Find(p.namespace, p.name)
	v.Restored = map[string]*usage.Profile{}
	for _, c := range saved {
		if c.Namespace != p.namespace || c.Spec.VPAObjectName != p.name {
			continue
		}
		image, err := checkpoint.Image(&through[v1.VerticalPodAutoscalerCheckpoint](t, c).Status)
		require.NoError(t, err)
		restored := usage.NewProfile(l.advisor.Shape)
		require.NoError(t, restored.Load(image))
		v.Restored[c.Spec.ContainerName] = &restored
	}
	v.Invalidate()
}

// through encodes a value and decodes it as another type, as another program would read it.
func through[To any](t *testing.T, value any) *To {
	var to To
	decode(t, encode(t, value), &to)
	return &to
}
