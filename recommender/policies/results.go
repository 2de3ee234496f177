package policies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/status"
)

const (
	maxWorkloads = 100
	maxErrors    = 10
	maxNames     = 3 // of degraded workloads in a message
)

type result struct {
	counts    loadlinev1alpha1.PolicyCounts
	workloads []workloadResult // by namespace, kind and name
	savings   rollout.Savings
	degraded  int
	names     []string // of degraded workloads
	// unmeasured is the number of workloads without evidence of throttling and pressure.
	unmeasured int
	errors     []string
	groups     map[group]int // number of workloads
}

type group struct {
	mode  fleet.Mode
	phase rollout.Phase
}

type workloadResult struct {
	*workload
	history

	savings rollout.Savings
	change  int
}

func (k *Keeper) results(o *overview) (map[string]*result, error) {
	uses, err := k.summarizeRequests(o)
	if err != nil {
		return nil, err
	}
	results := map[string]*result{}
	for _, p := range o.policies.Objects() {
		if k.isResponsible(o.policies.Set().Policy(p.Name)) {
			r := &result{groups: map[group]int{}}
			for _, problem := range o.problems[p.Name] {
				r.addProblem(problem)
			}
			results[p.Name] = r
		}
	}
	for i := range o.workloads {
		w := &o.workloads[i]
		if w.Policy == nil {
			continue
		}
		described := k.describe(w)
		if r := results[w.Policy.Name]; r != nil {
			r.add(w, &uses[i], k.Records.historyOf(&w.Workload))
			r.reportUnknownLabels(w, &described)
		}
		for p := range o.policies.Set().Selecting(described) {
			if r := results[p.Name]; r != nil && p.Name != w.Policy.Name {
				r.counts.Yielded++
			}
		}
	}
	return results, nil
}

func (r *result) add(w *workload, use *requestSummary, h history) {
	if w.Mode != fleet.Canary {
		h.phase = "" // phase of an earlier mode
	}
	r.count(w, use, h)
	r.groups[group{w.Mode, h.phase}]++
	if w.Problem != "" {
		r.addProblem(fmt.Sprintf("%s in namespace %s: %s", w.Key, w.Key.Namespace, w.Problem))
	}
	if w.refused != "" {
		r.addProblem(w.refused)
	}
	if h.degraded {
		if r.degraded++; r.degraded <= maxNames {
			r.names = append(r.names, fmt.Sprintf("%s in namespace %s", w.Key, w.Key.Namespace))
		}
	}
	if h.unmeasured && w.Mode > fleet.Recommend {
		r.unmeasured++
	}
	r.savings.Less, r.savings.More = sum(r.savings.Less, use.savings.Less), sum(r.savings.More, use.savings.More)
	r.workloads = append(r.workloads, workloadResult{workload: w, history: h, savings: use.savings, change: use.change()})
}

func (r *result) count(w *workload, use *requestSummary, h history) {
	c := &r.counts
	add := func(counter *int32, holds bool) {
		if holds {
			*counter++
		}
	}
	vpa := w.vpa()
	add(&c.Selected, true)
	add(&c.WithRecommendation, vpa != nil && status.Provided(vpa))
	add(&c.Applied, use.applied())
	add(&c.Pending, use.differs && w.Reason == "" && (w.Key.Kind != "CronJob" || w.Key.Group != ""))
	add(&c.Deferred, use.deferred)
	add(&c.Infeasible, use.infeasible || h.infeasible)
	add(&c.Reverted, h.reverted)
	add(&c.Refused, w.Reason == reason.OptedOut || w.refused != "")
}

func (r *result) reportUnknownLabels(w *workload, described *fleet.Workload) {
	switch {
	case w.Reason != reason.PolicyUnknown || w.Policy.Unusable != "":
	case described.LabelsUnknown:
		r.addProblem(fmt.Sprintf("%s in namespace %s is held: its labels exceed %s", w.Key, w.Key.Namespace, client.MaxLabels))
	case described.NamespaceLabels == nil:
		r.addProblem(fmt.Sprintf("workloads of namespace %s are held: its labels cannot be read or exceed %s", w.Key.Namespace, client.MaxLabels))
	}
}

func (r *result) addProblem(problem string) {
	if len(r.errors) < maxErrors && !slices.Contains(r.errors, problem) {
		r.errors = append(r.errors, problem)
	}
}

func (r *result) largest(now time.Time) (list []loadlinev1alpha1.WorkloadStatus) {
	slices.SortStableFunc(r.workloads, func(a, b workloadResult) int { return cmp.Compare(b.change, a.change) })
	for i := range r.workloads[:min(len(r.workloads), maxWorkloads)] {
		list = append(list, r.workloads[i].status(now))
	}
	return list
}

func (o *workloadResult) status(now time.Time) loadlinev1alpha1.WorkloadStatus {
	s := loadlinev1alpha1.WorkloadStatus{
		Ref:   loadlinev1alpha1.WorkloadReference{APIVersion: o.APIVersion, Kind: o.Key.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name},
		Mode:  loadlinev1alpha1.RolloutMode(o.Mode.String()),
		Phase: loadlinev1alpha1.RolloutPhase(o.phase), Degraded: o.degraded,
		Savings: sizes(o.savings.Less), Increases: sizes(o.savings.More),
	}
	if !o.lastChange.IsZero() {
		s.LastChange = new(metav1.NewTime(o.lastChange))
	}
	if o.Reason == "" && o.cooldown.After(now) {
		s.Next = new(metav1.NewTime(o.cooldown))
	}
	return s
}

func sizes(amounts resources.List) loadlinev1alpha1.Sizes {
	for k := range resources.Kind(resources.Kinds) {
		if amounts.Value(k) == 0 {
			amounts = amounts.Without(k)
		}
	}
	return loadlinev1alpha1.Sizes(convert.Format{}.List(amounts))
}

func sum(a, b resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		a = a.With(k, a.Value(k).Add(b.Value(k)))
	}
	return a
}

// After a refused VPA write, for example by an admission policy or in a terminating namespace, the
// namespace is retried after a delay that doubles each time.
const (
	minRetryDelay = time.Minute
	maxRetryDelay = time.Hour
)

type refusals map[string]*refusal

type refusal struct {
	vpa     string // last refused VPA
	problem string
	pause   time.Duration
	until   time.Time
}

func (r refusals) blocked(namespace string, now time.Time) string {
	if known := r[namespace]; known != nil && now.Before(known.until) {
		return known.problem
	}
	return ""
}

func (r refusals) refused(v *vpav1.VerticalPodAutoscaler, err error, now time.Time) string {
	known := r[v.Namespace]
	if known == nil {
		known = &refusal{pause: minRetryDelay / 2}
		r[v.Namespace] = known
	}
	known.vpa, known.problem = v.Name, fmt.Sprintf("VPAs cannot be written in namespace %s: %v", v.Namespace, err)
	known.pause = min(2*known.pause, maxRetryDelay)
	known.until = now.Add(known.pause)
	return known.problem
}

func (r refusals) prune(now time.Time) {
	maps.DeleteFunc(r, func(_ string, known *refusal) bool { return now.Sub(known.until) > maxRetryDelay })
}

func (r refusals) accepted(namespace string) {
	if known := r[namespace]; known != nil {
		known.pause, known.until = minRetryDelay/2, time.Time{}
	}
}
