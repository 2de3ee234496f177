package compat

import (
	"fmt"
	"math"
	"math/rand"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

// history is the life of a small cluster: flags and a sequence of events, as plain data that can be
// repeated, printed and shortened.
type history struct {
	seed    int64
	options options
	vpas    []vpaPlan
	events  []event
	skew    func(*options) // changes Loadline's options, nil: both must agree
}

func (h history) ours() options {
	o := h.options
	if h.skew != nil {
		h.skew(&o)
	}
	return o
}

type options struct {
	aggregation model.AggregationsConfig // only the fields that are flags
	estimate    logic.RecommendationConfig
	format      logic.RecommendationFormat
	integerCPU  bool
	maxAllowed  corev1.ResourceList
}

// vpaPlan is a VPA and the successive versions of its object.
type vpaPlan struct {
	namespace, name string
	versions        []*upstreamv1.VerticalPodAutoscaler
}

func (p vpaPlan) bare() *upstreamv1.VerticalPodAutoscaler {
	return &upstreamv1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, Annotations: map[string]string{}},
		Spec: upstreamv1.VerticalPodAutoscalerSpec{
			TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: p.name},
		},
	}
}

func (p vpaPlan) selector() labels.Selector { return labels.SelectorFromSet(labels.Set{"app": p.name}) }

type eventKind string

const (
	appears  eventKind = "pod appears"
	vanishes eventKind = "pod vanishes"
	uses     eventKind = "uses"
	killed   eventKind = "is killed"
	changes  eventKind = "VPA changes"
	passes   eventKind = "pass"
	restarts eventKind = "restart"
)

// event happens at an offset from the start of the history. Fields that its kind does not need are
// zero.
type event struct {
	kind      eventKind
	at        time.Duration
	vpa       int // index of the pod's VPA
	pod       string
	labels    labels.Set
	container string
	names     []string // containers of a pod
	resource  model.ResourceName
	sampled   time.Duration // of a sample or kill, offset from the start
	amount    int64         // millicores or bytes
	version   int           // index of the object version of the VPA
	cleans    bool          // the iteration ends with a cleanup of old histories
	saves     bool          // the iteration also compares checkpoints
	crossed   bool          // after a restart each side loads the other's checkpoints
}

func (e event) String() string {
	text := fmt.Sprintf("%9v %s", e.at, e.kind)
	switch e.kind {
	case appears:
		return fmt.Sprintf("%s: %s with %v, %v", text, e.pod, e.labels, e.names)
	case vanishes:
		return fmt.Sprintf("%s: %s", text, e.pod)
	case uses, killed:
		return fmt.Sprintf("%s: %s/%s %s %d at %v", text, e.pod, e.container, e.resource, e.amount, e.sampled)
	case changes:
		return fmt.Sprintf("%s: %d to version %d", text, e.vpa, e.version)
	case restarts:
		return fmt.Sprintf("%s crossed=%v", text, e.crossed)
	}
	return fmt.Sprintf("%s cleans=%v saves=%v", text, e.cleans, e.saves)
}

// dice generates random histories. Intentional differences between the recommenders are left out.
// Each such place names the row of docs/compatibility.md.
type dice struct {
	*rand.Rand
	vpas []vpaPlan
	pods []alive
	made int // number of pods so far
	now  time.Duration
	list []event
}

type alive struct {
	event event // its first event
	scale float64
	last  map[string]time.Duration // last sample by container
}

func (d *dice) chance(p float64) bool { return d.Float64() < p }

func one[T any](d *dice, choices ...T) T { return choices[d.Intn(len(choices))] }

func newHistory(seed int64) history {
	d := &dice{Rand: rand.New(rand.NewSource(seed))}
	h := history{seed: seed, options: d.options()}
	for i := range 1 + d.Intn(3) {
		d.vpas = append(d.vpas, d.plan(i))
	}
	h.vpas = d.vpas
	step := one(d, time.Minute, 10*time.Minute, time.Hour, 5*time.Hour)
	simple := d.chance(0.15)
	d.decay(&h.options.aggregation, step, simple)
	d.live(step, simple)
	h.events = d.list
	return h
}

// decay chooses half-lives. Short ones let weights of old samples fall below the cutoff, at a time
// that depends in upstream on the last read, which moves reference times in map order. They are
// used only in simple histories, with nothing to merge.
func (d *dice) decay(c *model.AggregationsConfig, step time.Duration, simple bool) {
	choose := func() time.Duration {
		if simple {
			return one(d, time.Hour, 90*time.Minute, 7*time.Hour, 24*time.Hour)
		}
		least := longest * step * 3 / 2 / 8
		return max(least, one(d, 24*time.Hour, 24*time.Hour, 12*time.Hour, 72*time.Hour, 31*time.Hour))
	}
	c.CPUHistogramDecayHalfLife, c.MemoryHistogramDecayHalfLife = choose(), choose()
}

func (d *dice) options() options {
	o := options{
		aggregation: *model.NewAggregationsConfig(
			one(d, 24*time.Hour, 24*time.Hour, time.Hour, 6*time.Hour, 25*time.Minute), one[int64](d, 8, 8, 200, 60),
			0, 0, // set by decay
			one(d, 1.2, 1.2, 1, 2.5), one(d, 100.*(1<<20), 1, 1e9)),
		estimate: logic.RecommendationConfig{
			SafetyMarginFraction: one(d, 0.15, 0.15, 0, 0.333, 2), PodMinCPUMillicores: one(d, 25., 25, 0, 10.7, 300), PodMinMemoryMb: one(d, 250., 250, 0, 10, 33.3),
			TargetCPUPercentile: one(d, 0.9, 0.9, 0.5, 1, 0), LowerBoundCPUPercentile: one(d, 0.5, 0.1, 0.77), UpperBoundCPUPercentile: one(d, 0.95, 0.99, 1), ConfidenceIntervalCPU: one(d, 24*time.Hour, time.Hour),
			TargetMemoryPercentile: one(d, 0.9, 0.9, 0.5, 1), LowerBoundMemoryPercentile: one(d, 0.5, 0.05), UpperBoundMemoryPercentile: one(d, 0.95, 1), ConfidenceIntervalMemory: one(d, 24*time.Hour, 5*time.Hour),
		},
		format:     logic.RecommendationFormat{RoundCPUMillicores: one(d, 1, 1, 10, 100, 0), RoundMemoryBytes: one(d, 1, 1, 1<<20, 1000, -5), HumanizeMemory: d.chance(0.2)},
		integerCPU: d.chance(0.3),
	}
	if d.chance(0.3) {
		o.maxAllowed = d.bounds(2)
	}
	return o
}

var containers = []string{"app", "sidecar", "a-b"}

// plan returns the i-th VPA. Each VPA selects its own pods: for pods of two VPAs the last writer
// wins upstream.
func (d *dice) plan(i int) vpaPlan {
	p := vpaPlan{namespace: one(d, "shop", "shop", "lab"), name: fmt.Sprint("web", i)}
	tuned := d.tuning(nil)
	for range 1 + d.Intn(3) {
		p.versions = append(p.versions, d.object(p, tuned))
		tuned = d.tuning(tuned)
	}
	return p
}

// tuning sets the container policy fields that override flags. A later version sets the same fields
// to other values, because upstream keeps removed overrides.
func (d *dice) tuning(before map[string]upstreamv1.ContainerResourcePolicy) map[string]upstreamv1.ContainerResourcePolicy {
	after := map[string]upstreamv1.ContainerResourcePolicy{}
	for _, name := range append([]string{"*"}, containers...) {
		former, again := before[name]
		if before != nil && !again || before == nil && d.chance(0.6) {
			continue
		}
		p := upstreamv1.ContainerResourcePolicy{ContainerName: name}
		if former.OOMBumpUpRatio != nil || !again && d.chance(0.4) {
			p.OOMBumpUpRatio = new(resource.MustParse(one(d, "1", "1.5", "3", "1200m", "1.0005")))
		}
		if former.OOMMinBumpUp != nil || !again && d.chance(0.4) {
			// Not 0: an OOM kill of a container without memory samples would begin a window with 0.
			p.OOMMinBumpUp = new(resource.MustParse(one(d, "1", "50Mi", "1G", "1500m")))
		}
		if former.MemoryAggregationIntervalSeconds != nil || !again && d.chance(0.3) {
			p.MemoryAggregationIntervalSeconds = new(one[int32](d, 3600, 7200, 86400, 50000))
		}
		if former.MemoryAggregationIntervalCount != nil || !again && d.chance(0.3) {
			p.MemoryAggregationIntervalCount = new(one[int64](d, 8, 100))
		}
		after[name] = p
	}
	return after
}

func (d *dice) object(p vpaPlan, tuned map[string]upstreamv1.ContainerResourcePolicy) *upstreamv1.VerticalPodAutoscaler {
	v := p.bare()
	for _, name := range containers {
		if d.chance(0.3) {
			v.Annotations["vpa-post-processor.kubernetes.io/"+name+"_integerCPU"] = one(d, "true", "false")
		}
	}
	var policies []upstreamv1.ContainerResourcePolicy
	for _, name := range append([]string{"*"}, containers...) {
		c, isTuned := tuned[name]
		if !isTuned {
			continue
		}
		if d.chance(0.5) {
			c.MinAllowed = d.bounds(1)
		}
		if d.chance(0.5) {
			c.MaxAllowed = d.bounds(3)
		}
		if d.chance(0.2) {
			c.Mode = new(one(d, upstreamv1.ContainerScalingModeAuto, upstreamv1.ContainerScalingModeOff))
		}
		if d.chance(0.3) {
			c.ControlledResources = new(one(d, []corev1.ResourceName{"cpu"}, []corev1.ResourceName{"memory"}, []corev1.ResourceName{"cpu", "memory"}, []corev1.ResourceName{}))
		}
		policies = append(policies, c)
	}
	if policies != nil {
		v.Spec.ResourcePolicy = &upstreamv1.PodResourcePolicy{ContainerPolicies: policies}
	}
	return v
}

func (d *dice) bounds(size float64) corev1.ResourceList {
	list := corev1.ResourceList{}
	if d.chance(0.7) {
		list["cpu"] = *resource.NewMilliQuantity(int64(d.lognormal(200*size)), resource.DecimalSI)
	}
	if d.chance(0.7) {
		list["memory"] = one(d, *resource.NewQuantity(int64(d.lognormal(3e8*size)), resource.BinarySI), resource.MustParse("512Mi"), resource.MustParse("1G"), resource.MustParse("0"))
	}
	return list
}

func (d *dice) lognormal(median float64) float64 { return median * math.Exp(d.NormFloat64()) }
