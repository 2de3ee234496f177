package recommend

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
)

// OutputLimits are the flags that modify recommendations before publishing.
type OutputLimits struct {
	IntegerCPU bool                // honor the integer CPU annotation
	MaxAllowed corev1.ResourceList // for containers whose policy has no maximum
}

// RoundAndCap rounds CPU up to whole cores if requested, then caps all values except the uncapped
// target with the container policy. A value equal to a policy bound keeps its notation.
func RoundAndCap(list []vpav1.RecommendedContainerResources, vpa *vpav1.VerticalPodAutoscaler, l OutputLimits) []vpav1.RecommendedContainerResources {
	rules := convert.Rules(vpa)
	most := convert.Resources(l.MaxAllowed)
	done := make([]vpav1.RecommendedContainerResources, len(list))
	for i, c := range list {
		if l.IntegerCPU && vpa.Annotations["vpa-post-processor.kubernetes.io/"+c.ContainerName+"_integerCPU"] == "true" {
			c = wholeCores(c)
		}
		done[i] = capContainer(c, rules.For(c.ContainerName).WithDefaultMax(most), boundLists(vpa, c.ContainerName, l.MaxAllowed))
		if done[i].Target == nil {
			done[i].Target = corev1.ResourceList{} // required, the API server rejects null
		}
	}
	return done
}

// boundLists returns the bounds in their original notation, first from the container policy.
func boundLists(vpa *vpav1.VerticalPodAutoscaler, container string, most corev1.ResourceList) []corev1.ResourceList {
	if p := convert.ContainerPolicy(vpa, container); p != nil {
		return []corev1.ResourceList{p.MinAllowed, p.MaxAllowed, most}
	}
	return []corev1.ResourceList{most}
}

func capContainer(c vpav1.RecommendedContainerResources, rule policy.Rule, bounds []corev1.ResourceList) vpav1.RecommendedContainerResources {
	if rule.Min.Empty() && rule.Max.Empty() {
		return c
	}
	b := policy.Cap(convert.Bounds(c), rule)
	like := func(own corev1.ResourceList) []corev1.ResourceList {
		return append([]corev1.ResourceList{own}, bounds...)
	}
	c.LowerBound = convert.FormatLike(b.Lower, like(c.LowerBound)...)
	c.Target = convert.FormatLike(b.Target, like(c.Target)...)
	c.UpperBound = convert.FormatLike(b.Upper, like(c.UpperBound)...)
	return c
}

func wholeCores(c vpav1.RecommendedContainerResources) vpav1.RecommendedContainerResources {
	for _, list := range []*corev1.ResourceList{&c.Target, &c.LowerBound, &c.UpperBound, &c.UncappedTarget} {
		q, found := (*list)[corev1.ResourceCPU]
		if !found {
			continue
		}
		rounded := list.DeepCopy()
		rounded[corev1.ResourceCPU] = *resource.NewQuantity(q.Value(), q.Format)
		*list = rounded
	}
	return c
}

// CountLimited sets the number of VPAs affected by each limit.
func CountLimited(gauge *prometheus.GaugeVec, vpas []*model.VPA) {
	counts := map[string]int{"containers": 0, "vpas": 0, "status_bytes": 0, "namespace_bytes": 0}
	for _, v := range vpas {
		if v.OmittedMessage() != "" {
			counts["containers"]++
		}
		if v.Outranked() {
			counts["vpas"]++
		}
		if v.Published.TooLarge {
			counts["status_bytes"]++
		}
		if client.VPARefused(v.Object) {
			counts["namespace_bytes"]++
		}
	}
	for limit, n := range counts {
		gauge.WithLabelValues(limit).Set(float64(n))
	}
}

// CountRising sets the number of VPAs with growing memory.
func CountRising(gauge prometheus.Gauge, vpas []*model.VPA) {
	n := 0
	for _, v := range vpas {
		if v.Published.Rising {
			n++
		}
	}
	gauge.Set(float64(n))
}

// CountByHistory sets the number of VPAs with a recommendation by history step, such as "1day".
func CountByHistory(gauge *prometheus.GaugeVec, vpas []*model.VPA) {
	var counts [len(convert.HistorySteps)]int
	for _, v := range vpas {
		if v.Published.HistoryStep > 0 && v.Published.Recommended {
			counts[v.Published.HistoryStep-1]++
		}
	}
	for step, n := range counts {
		gauge.WithLabelValues(strings.ReplaceAll(convert.HistorySteps[step].Name, " ", "")).Set(float64(n))
	}
}

// LoadingGauge reports the progress of a history load. Complete is safe for concurrent use. The
// zero value is complete and has no metrics, for tests.
type LoadingGauge struct {
	loading atomic.Bool
	total   int

	ratio, complete, pending prometheus.Gauge
}

// NewLoadingGauge returns a complete gauge and registers its metrics.
func NewLoadingGauge(registry prometheus.Registerer) *LoadingGauge {
	auto := promauto.With(registry)
	l := &LoadingGauge{
		ratio: auto.NewGauge(prometheus.GaugeOpts{
			Name: "loadline_recommender_history_progress_ratio",
			Help: "Loaded part of the history from before the start, from 0 to 1.",
		}),
		complete: auto.NewGauge(prometheus.GaugeOpts{
			Name: "loadline_recommender_history_complete",
			Help: "1 if all history from before the start is loaded or none is needed. Also 0 while Prometheus has no usage, until a day of live usage is known. While it is 0, no published target is lowered.",
		}),
		pending: auto.NewGauge(prometheus.GaugeOpts{
			Name: "loadline_recommender_history_pending_vpas",
			Help: "VPAs that wait for history from Prometheus after the load at the start: new VPAs, VPAs with a new recipe, and VPAs with new containers.",
		}),
	}
	l.set(false, 1)
	return l
}

// Begin starts a load of total parts of about equal work.
func (l *LoadingGauge) Begin(total int) {
	l.total = total
	l.SetLoaded(0)
}

// SetLoaded sets the number of loaded parts.
func (l *LoadingGauge) SetLoaded(parts int) { l.set(true, float64(parts)/float64(max(l.total, 1))) }

// SetComplete marks all history as loaded. Do not call it after a permanent failure.
func (l *LoadingGauge) SetComplete() { l.set(false, 1) }

// SetPending sets the number of VPAs that wait for late loads.
func (l *LoadingGauge) SetPending(vpas int) {
	if l.pending != nil {
		l.pending.Set(float64(vpas))
	}
}

// Complete reports whether all history is loaded.
func (l *LoadingGauge) Complete() bool { return !l.loading.Load() }

func (l *LoadingGauge) set(loading bool, ratio float64) {
	l.loading.Store(loading)
	if l.ratio != nil {
		l.ratio.Set(min(ratio, 1))
		l.complete.Set(map[bool]float64{false: 1}[loading])
	}
}
