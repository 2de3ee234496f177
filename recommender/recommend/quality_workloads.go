package recommend

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

// WorkloadQuality serves quality metrics of each recommendation: how much of the target is unused,
// how often usage exceeds it, how old it is, and how much history it has. It is optional, because
// it has up to 19 series for each VPA and container.
//
//   - The target is the published one, capped by the policy of the VPA. It counts from the first
//     iteration that reads it from the status, which is the one after its write.
//   - The values of a resource reset with each new target of that resource, and with a restart.
//   - Samples are accepted ones of all controlled pods, with equal weight for each pod and minute.
//     Kills are counted separately.
//   - The current time is the time of the last iteration.
//
// VPAs and containers without a recommendation have no series. A VPA with another target counts as
// new.
//
// It is safe for concurrent use. A nil WorkloadQuality does nothing.
type WorkloadQuality struct {
	qualityDescriptions

	mu        sync.Mutex // held briefly, also while metrics are collected
	now       time.Time  // of the last iteration
	workloads map[*model.VPA]*workloadRecord
}

type workloadRecord struct {
	namespace, name string
	object          *vpav1.VerticalPodAutoscaler // with the last read status
	containers      []containerRecord            // with a recommendation
}

type containerRecord struct {
	name     string
	records  [resources.Kinds]kindRecord
	complete float64 // part of the maximum history, 0 to 1
	insights [resources.Kinds]recipe.Insight
	insight  bool // the recipe has insights
}

// kindRecord holds the values since a target changed, in millicores or bytes.
type kindRecord struct {
	published bool // false: no target, all else is zero
	target    resources.Amount
	change    float64 // last change as a fraction of the previous target, NaN: none
	since     time.Time

	samples, above int64
	sum            float64
	peak           resources.Amount
	kills          int64
}

// NewWorkloadQuality returns and registers metrics without workloads.
func NewWorkloadQuality(registry prometheus.Registerer) *WorkloadQuality {
	w := &WorkloadQuality{qualityDescriptions: describeQuality()}
	registry.MustRegister(w)
	return w
}

// Follow updates targets and drops deleted VPAs. Call it once per iteration, before the samples.
func (w *WorkloadQuality) Follow(cluster *model.Model, store *usage.Store, now time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
	known := make(map[*model.VPA]*workloadRecord, len(cluster.VPAs()))
	for _, v := range cluster.VPAs() {
		record := w.workloads[v]
		if record == nil {
			record = &workloadRecord{namespace: v.Object.Namespace, name: v.Object.Name}
		}
		known[v] = record
		if record.object != v.Object {
			record.readStatus(v.Object, now)
		}
		for i := range record.containers {
			c := &record.containers[i]
			c.insights, c.insight = insightsOf(v, c.name)
			c.complete = min(float64(completeness(v, c.name, store))/float64(v.RulesOf(c.name).Age()), 1)
		}
	}
	w.workloads = known // a new map, because Collect may read the old one
}

func insightsOf(v *model.VPA, container string) ([resources.Kinds]recipe.Insight, bool) {
	if v.Recipe == nil {
		return [resources.Kinds]recipe.Insight{}, false
	}
	return v.Recipe.Insights(v.Sketches[container])
}

// completeness returns the time covered by samples: from first to last, or one minute per sample if
// that is less. Confidence uses the same measure.
func completeness(v *model.VPA, container string, store *usage.Store) time.Duration {
	var first, last time.Time
	var samples int64
	cover := func(from, to time.Time, n int64) {
		if !from.IsZero() && (first.IsZero() || from.Before(first)) {
			first = from
		}
		if to.After(last) {
			last = to
		}
		samples += n
	}
	for _, series := range v.Series(container) {
		cover(store.Span(series))
	}
	if p := v.Restored[container]; p != nil {
		cover(p.First(), p.Last(), p.Samples())
	}
	if first.IsZero() {
		return 0
	}
	const longest = int64(math.MaxInt64 / time.Minute)
	return min(max(last.Sub(first), 0), time.Duration(min(samples, longest))*time.Minute)
}

func (one *workloadRecord) readStatus(object *vpav1.VerticalPodAutoscaler, now time.Time) {
	former := one.containers
	one.object, one.containers = object, nil
	if object.Status.Recommendation == nil {
		return
	}
	list := object.Status.Recommendation.ContainerRecommendations
	one.containers = make([]containerRecord, 0, len(list))
	for i := range list {
		name := list[i].ContainerName
		if findContainer(one.containers, name) != nil {
			continue // the first counts
		}
		c := containerRecord{name: name}
		if before := findContainer(former, name); before != nil {
			c = *before
		}
		targets := convert.Resources(list[i].Target)
		for k := range resources.Kind(resources.Kinds) {
			target, published := targets.Get(k)
			c.records[k].setTarget(target, published, now)
		}
		one.containers = append(one.containers, c)
	}
}

func findContainer(containers []containerRecord, name string) *containerRecord {
	if at := slices.IndexFunc(containers, func(c containerRecord) bool { return c.name == name }); at >= 0 {
		return &containers[at]
	}
	return nil
}

func (r *kindRecord) setTarget(target resources.Amount, published bool, now time.Time) {
	switch {
	case !published:
		*r = kindRecord{}
	case !r.published || r.target != target:
		change := math.NaN()
		if r.published && r.target > 0 {
			change = float64(target)/float64(r.target) - 1
		}
		*r = kindRecord{published: true, target: target, change: change, since: now}
	}
}

// Observe adds a sample of a container. It ignores a nil v and resources without a target.
func (w *WorkloadQuality) Observe(v *model.VPA, container string, k resources.Kind, used resources.Amount) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.record(v, container, k); r != nil {
		r.samples++
		r.sum += float64(used)
		r.peak = max(r.peak, used)
		if used > r.target {
			r.above++
		}
	}
}

// Killed adds an out-of-memory kill of a container.
func (w *WorkloadQuality) Killed(v *model.VPA, container string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.record(v, container, resources.Memory); r != nil {
		r.kills++
	}
}

// record returns nil for a resource without a target. The caller holds the lock.
func (w *WorkloadQuality) record(v *model.VPA, container string, k resources.Kind) *kindRecord {
	workload := w.workloads[v]
	if workload == nil {
		return nil
	}
	c := findContainer(workload.containers, container)
	if c == nil || !c.records[k].published {
		return nil
	}
	return &c.records[k]
}
