// Package policies generates VPAs for the workloads that SizingPolicies select, and writes the
// status of the policies.
//
// Package fleet selects the policy of each workload. Keeper creates the VPAs, updates them to match
// the policy, and deletes them a day after their workload is no longer selected. Generated VPAs
// always have mode Off, so that a leftover one changes nothing. The package changes no pod and
// makes no recommendation.
package policies

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/model"
)

// Interval between two iterations, and the maximum rate of VPA writes.
const (
	interval        = 10 * time.Second
	writesPerSecond = 20
)

// Keeper maintains the generated VPAs. Exported fields are set once. It belongs to one goroutine.
type Keeper struct {
	Client     versioned.Interface
	Policies   *sizing.Policies
	Records    *Records
	VPAs       vpalisters.VerticalPodAutoscalerLister
	Pods       corelisters.PodLister
	Workloads  *target.Resolver
	Kinds      *client.Scales // checks whether kinds exist
	Name       string         // of this recommender
	Namespaces flags.Namespaces
	Metrics    *Metrics
	Guard      model.Guard // around an iteration

	limiter       flowcontrol.RateLimiter
	refusals      refusals
	statuses      map[string]statusState
	lastReport    time.Time // last status report
	iterations    int
	readableSince time.Time // policies are readable since, zero: unreadable
}

// Run runs RunOnce periodically while this replica leads.
func (k *Keeper) Run(ctx context.Context) {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		if lease.Check(ctx) == nil { // else another replica may lead
			k.RunOnce(ctx, time.Now())
		}
	}, interval)
}

type overview struct {
	policies  *sizing.Snapshot
	workloads []workload // sorted by namespace, kind and name
	// generated VPAs without an existing workload
	orphaned []*vpav1.VerticalPodAutoscaler
	problems map[string][]string // by policy
}

// workload is selected by a policy or has a generated VPA.
type workload struct {
	target.Workload
	fleet.Decision

	userVPA, generated *vpav1.VerticalPodAutoscaler // nil: none
	refused            string                       // why the VPA could not be written, empty: no problem
}

func (w *workload) vpa() *vpav1.VerticalPodAutoscaler {
	if w.userVPA != nil {
		return w.userVPA
	}
	return w.generated
}

// RunOnce writes VPAs for at most one interval and leaves the rest, then writes statuses.
func (k *Keeper) RunOnce(ctx context.Context, now time.Time) {
	defer k.Guard.Recover(nil)
	if k.limiter == nil {
		k.limiter = flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond)
		k.refusals, k.statuses = refusals{}, map[string]statusState{}
	}
	k.iterations++
	switch readable := k.Policies.Readable(); {
	case !readable:
		k.readableSince = time.Time{}
	case k.readableSince.IsZero():
		k.readableSince = now
	}
	o, err := k.observe(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read caches, not generating VPAs for SizingPolicies")
		return
	}
	k.write(ctx, o, now)
	k.refusals.prune(now)
	k.report(ctx, o, now)
}

var generatedSelector, _ = labels.Parse(fleet.PolicyLabel) // a constant never fails to parse

// observe reads caches, except for new workloads of unlisted kinds.
func (k *Keeper) observe(ctx context.Context) (*overview, error) {
	o, wanted := &overview{policies: k.Policies.Snapshot()}, labels.Everything()
	set := o.policies.Set()
	if set.Len() == 0 { // as in most clusters
		wanted = generatedSelector
	}
	vpas, err := k.VPAs.List(wanted)
	if err != nil || set.Len()+len(vpas) == 0 {
		return o, err
	}
	userVPAs, generated := vpasByTarget{}, vpasByTarget{}
	for _, v := range vpas {
		if v.Spec.TargetRef == nil || !k.Namespaces.Includes(v.Namespace) {
			continue
		}
		byTarget := userVPAs
		if convert.IsGenerated(v) {
			byTarget = generated
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		if other := byTarget[key]; other == nil || target.CompareClaims(target.ClaimOf(v), target.ClaimOf(other)) < 0 {
			byTarget[key] = v
		}
	}
	addWorkload := func(t target.Workload) {
		if !k.Namespaces.Includes(t.Key.Namespace) {
			return
		}
		w := workload{Workload: t, userVPA: userVPAs[t.Key], generated: generated[t.Key]}
		delete(generated, t.Key)
		if w.Decision = set.Decide(k.describe(&w)); w.Policy != nil || w.generated != nil {
			o.workloads = append(o.workloads, w)
		}
	}
	k.Workloads.Each(addWorkload)
	unlisted, err := k.findUnlisted(ctx, set, userVPAs, generated)
	if err != nil {
		return o, err
	}
	for _, t := range unlisted.workloads {
		addWorkload(t)
	}
	o.problems = unlisted.problems
	slices.SortFunc(o.workloads, func(a, b workload) int { return target.CompareKeys(a.Key, b.Key) })
	for key, v := range generated {
		if !unlisted.unknown[key] {
			o.orphaned = append(o.orphaned, v)
		}
	}
	slices.SortFunc(o.orphaned, func(a, b *vpav1.VerticalPodAutoscaler) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return o, nil
}

func (k *Keeper) describe(w *workload) fleet.Workload {
	described := k.Policies.FleetWorkload(w.Workload)
	switch {
	case w.userVPA != nil:
		described.VPA = sizing.FleetVPA(w.userVPA, false)
	case w.generated != nil:
		described.VPA = sizing.FleetVPA(w.generated, true)
	}
	return described
}

func (k *Keeper) isResponsible(p *fleet.Policy) bool { return p.Recommender == k.Name }

// Follow applies policies to the VPAs of a model. A VPA of an unknown policy stays unchanged.
func Follow(policies *sizing.Policies, m *model.Model) {
	for _, v := range m.VPAs() {
		d := policies.For(v.Object)
		if d.Reason == reason.PolicyUnknown || d.Policy != nil && d.Policy.Unusable != "" {
			continue
		}
		var s model.Sizing
		if d.Policy != nil {
			s.Policy, s.Recipe = d.Policy.Name, d.Policy.Recipe
			s.OverridesAnnotation = d.RestrictsUserVPAs() && v.Object.Annotations[recipe.Annotation] != ""
			// The recommendation of a user VPA is never withdrawn.
			s.Observe = d.Mode == fleet.Observe && convert.IsGenerated(v.Object)
		}
		v.Sizing = s
	}
}

// Metrics are the metrics of a Keeper.
type Metrics struct {
	VPAs      *prometheus.CounterVec // generated VPAs by result
	Workloads *prometheus.GaugeVec   // by policy, mode and phase
	Degraded  *prometheus.GaugeVec   // workloads by policy
	Cores     *prometheus.GaugeVec   // savings by policy
	Bytes     *prometheus.GaugeVec   // savings by policy
}

// NewMetrics creates and registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	auto := promauto.With(registry)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"policy"}, labels...))
	}
	return &Metrics{
		VPAs: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "loadline_recommender_generated_vpas_total",
			Help: "Writes of generated VPAs by result: created, changed, removed, refused, error.",
		}, []string{"result"}),
		Workloads: gauge("loadline_policy_workloads",
			"Workloads to which a SizingPolicy applies, by effective mode and rollout phase.", "mode", "phase"),
		Degraded: gauge("loadline_policy_degraded", "Workloads of a SizingPolicy with repeatedly reverted changes."),
		Cores: gauge("loadline_policy_saved_cores",
			"Reduction of CPU requests if the recommendations were applied, in running pods of a SizingPolicy, over containers with lower recommendations."),
		Bytes: gauge("loadline_policy_saved_bytes",
			"Reduction of memory requests if the recommendations were applied, in running pods of a SizingPolicy, over containers with lower recommendations."),
	}
}

func (m *Metrics) reset() {
	for _, g := range [...]*prometheus.GaugeVec{m.Workloads, m.Degraded, m.Cores, m.Bytes} {
		g.Reset()
	}
}
