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

// WorkloadQuality serves metrics that say how good the recommendation of each container is: how much of the target is
// unused, how often usage is above it, how old it is, and how much history is behind it. They are there for whoever
// asks for them only, because there are up to 19 series for each VPA and container.
//
// It keeps a few numbers for each VPA, container and resource, and makes metrics of them when somebody reads them:
//
//   - The target is the published one, capped by the policy of the VPA: what a new
//     pod would ask for. A target counts from the first pass that sees it in the
//     status, which is the one after it was written.
//   - With each new target of a resource, the numbers of that resource begin anew;
//     that of the other goes on. A restart is a beginning too: what was before is
//     not known.
//   - Samples are those that count in the history, of all pods that the VPA
//     controls: each pod and minute the same. Kills are counted, but are no
//     samples.
//   - Now is the time of the last pass.
//
// A VPA or container that is gone, or that nothing is recommended for any more,
// has no series any more. A VPA that points to another target is another VPA.
//
// It is safe for concurrent use; nil has no metrics, and its methods do nothing.
type WorkloadQuality struct {
	qualityDescriptions

	mu    sync.Mutex // held for a moment only, while metrics are read too
	now   time.Time  // of the last pass
	known map[*model.VPA]*workloadRecord
}

type workloadRecord struct {
	namespace, name string
	object          *vpav1.VerticalPodAutoscaler // whose status was read last
	containers      []containerRecord            // that have a recommendation, few
}

type containerRecord struct {
	name     string
	records  [resources.Kinds]kindRecord
	complete float64 // how much of the history that is ever kept there is, 0 to 1
	insights [resources.Kinds]recipe.Insight
	insight  bool // the recipe has insights
}

// kindRecord is what happened since the target of a resource changed. Amounts are in millicores or bytes.
type kindRecord struct {
	published bool // false: there is no target, and nothing else
	target    resources.Amount
	change    float64 // last one, as a fraction of the former target; NaN: none was seen
	since     time.Time

	samples, above int64
	sum            float64
	peak           resources.Amount
	kills          int64
}

// NewWorkloadQuality returns metrics without any workload, and registers them.
func NewWorkloadQuality(registry prometheus.Registerer) *WorkloadQuality {
	w := &WorkloadQuality{qualityDescriptions: describeQuality()}
	registry.MustRegister(w)
	return w
}

// Follow takes over the published targets and the length of histories, and forgets VPAs that are not in the model. It
// is called once a pass, before the samples.
func (w *WorkloadQuality) Follow(cluster *model.Model, store *usage.Store, now time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
	known := make(map[*model.VPA]*workloadRecord, len(cluster.VPAs()))
	for _, v := range cluster.VPAs() {
		one := w.known[v]
		if one == nil {
			one = &workloadRecord{namespace: v.Object.Namespace, name: v.Object.Name}
		}
		known[v] = one
		if one.object != v.Object {
			one.read(v.Object, now)
		}
		for i := range one.containers {
			c := &one.containers[i]
			c.insights, c.insight = insightsOf(v, c.name)
			c.complete = min(float64(completeness(v, c.name, store))/float64(v.RulesOf(c.name).Age()), 1)
		}
	}
	w.known = known // a new map, because the old one may be being read
}

// insightsOf returns what the recipe of a VPA knows of a container besides amounts.
func insightsOf(v *model.VPA, container string) ([resources.Kinds]recipe.Insight, bool) {
	if v.Recipe == nil {
		return [resources.Kinds]recipe.Insight{}, false
	}
	return v.Recipe.Insights(v.Sketches[container])
}

// completeness returns how long the samples of a container cover: the time from first to last, or their number at one a
// minute, whichever is less. That is what the confidence in a recommendation counts too.
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

func (one *workloadRecord) read(object *vpav1.VerticalPodAutoscaler, now time.Time) {
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
			c.records[k].set(target, published, now)
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

// set takes a target that is published now, if it is; a new one begins a new record.
func (r *kindRecord) set(target resources.Amount, published bool, now time.Time) {
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

// Observe takes a sample of a container that v controls; nil: none does. What has no target is not counted.
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

// Killed takes an out-of-memory kill of a container that v controls.
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

// kindRecord returns the record of a resource that has a target, nil without one. The caller holds the lock.
func (w *WorkloadQuality) record(v *model.VPA, container string, k resources.Kind) *kindRecord {
	one := w.known[v]
	if one == nil {
		return nil
	}
	c := findContainer(one.containers, container)
	if c == nil || !c.records[k].published {
		return nil
	}
	return &c.records[k]
}
