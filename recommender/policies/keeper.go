// Package policies makes VPAs for the workloads that SizingPolicies select, removes those
// that nobody needs any more, and says in the status of each policy what came of it.
//
// Keeper.Pass goes over all workloads once: which policy is responsible is the answer of package fleet; here VPAs are
// made, kept as the policy wants them, and removed a day after the last policy that wanted them. Made VPAs are always
// of mode Off, so that nothing is changed because of one that is left behind. Follow gives the VPAs of a model what the
// policies say about their recommendations.
//
// What a status says comes from the VPAs, from the Records of the updater, and from the pods
// that run: what they request, and whether their nodes hold what they shall get.
//
// The package changes no pod and makes no recommendation.
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

// A Keeper makes a pass so often, and writes so many VPAs a second at most.
const (
	interval        = 10 * time.Second
	writesPerSecond = 20
)

// Keeper keeps the VPAs of policies. Its exported fields are set once; it belongs to one goroutine.
type Keeper struct {
	Client     versioned.Interface
	Policies   *sizing.Policies
	Records    *Records
	VPAs       vpalisters.VerticalPodAutoscalerLister
	Pods       corelisters.PodLister
	Workloads  *target.Resolver
	Kinds      *client.Scales // knows which kinds there are
	Name       string         // of this recommender
	Namespaces flags.Namespaces
	Metrics    *Metrics
	Guard      model.Guard // around a pass

	limiter  flowcontrol.RateLimiter
	refusals refusals
	statuses map[string]statusTime
	looked   time.Time // when statuses were last made
	passes   int
	readable time.Time // since when policies can be read without a break; zero: they cannot
}

// Run makes passes until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		if lease.Check(ctx) == nil { // else another replica may lead
			k.Pass(ctx, time.Now())
		}
	}, interval)
}

type overview struct {
	policies  *sizing.Snapshot
	workloads []workload // sorted by namespace, kind and name
	// lost are made VPAs whose workload is not there.
	lost     []*vpav1.VerticalPodAutoscaler
	problems map[string][]string // what is wrong with the workloads that policies name, by policy
}

// workload is one that a policy selects, or that has a made VPA.
type workload struct {
	target.Workload
	fleet.Decision

	person, made *vpav1.VerticalPodAutoscaler // nil: there is none
	refused      string                       // why the VPA could not be made or changed; empty: nothing hinders that
}

// vpa returns the VPA that counts for the workload; nil: it has none.
func (w *workload) vpa() *vpav1.VerticalPodAutoscaler {
	if w.person != nil {
		return w.person
	}
	return w.made
}

// Pass makes, changes and removes VPAs for as long as the next pass is not due: what is left
// follows in that one, which has seen the policies anew. Then it writes statuses.
func (k *Keeper) Pass(ctx context.Context, now time.Time) {
	defer k.Guard.Recover(nil)
	if k.limiter == nil {
		k.limiter = flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond)
		k.refusals, k.statuses = refusals{}, map[string]statusTime{}
	}
	k.passes++
	switch readable := k.Policies.Readable(); {
	case !readable:
		k.readable = time.Time{}
	case k.readable.IsZero():
		k.readable = now
	}
	o, err := k.look(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Caches cannot be read, so no VPA is made for SizingPolicies")
		return
	}
	k.write(ctx, o, now)
	k.refusals.prune(now)
	k.report(ctx, o, now)
}

// labelled selects VPAs that may be made.
var labelled, _ = labels.Parse(fleet.PolicyLabel) // the label is a constant

// look reads everything from caches, but for workloads of kinds that are not listed when they
// are met for the first time.
func (k *Keeper) look(ctx context.Context) (*overview, error) {
	o, wanted := &overview{policies: k.Policies.Now()}, labels.Everything()
	set := o.policies.Set()
	if set.Len() == 0 { // as in most clusters
		wanted = labelled
	}
	vpas, err := k.VPAs.List(wanted)
	if err != nil || set.Len()+len(vpas) == 0 {
		return o, err
	}
	person, made := vpasOf{}, vpasOf{}
	for _, v := range vpas {
		if v.Spec.TargetRef == nil || !k.Namespaces.Serves(v.Namespace) {
			continue
		}
		of := person
		if convert.MadeForPolicy(v) {
			of = made
		}
		key := target.RefKey(v.Namespace, v.Spec.TargetRef)
		if other := of[key]; other == nil || target.CompareClaims(target.ClaimOf(v), target.ClaimOf(other)) < 0 {
			of[key] = v
		}
	}
	seen := func(t target.Workload) {
		if !k.Namespaces.Serves(t.Key.Namespace) {
			return
		}
		w := workload{Workload: t, person: person[t.Key], made: made[t.Key]}
		delete(made, t.Key)
		if w.Decision = set.For(k.describe(&w)); w.Policy != nil || w.made != nil {
			o.workloads = append(o.workloads, w)
		}
	}
	k.Workloads.Each(seen)
	others, err := k.others(ctx, set, person, made)
	if err != nil {
		return o, err
	}
	for _, t := range others.workloads {
		seen(t)
	}
	o.problems = others.problems
	slices.SortFunc(o.workloads, func(a, b workload) int { return target.CompareKeys(a.Key, b.Key) })
	for key, v := range made {
		if !others.kept[key] {
			o.lost = append(o.lost, v)
		}
	}
	slices.SortFunc(o.lost, func(a, b *vpav1.VerticalPodAutoscaler) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return o, nil
}

func (k *Keeper) describe(w *workload) fleet.Workload {
	described := k.Policies.Describe(w.Workload)
	switch {
	case w.person != nil:
		described.VPA = sizing.Author(w.person, false)
	case w.made != nil:
		described.VPA = sizing.Author(w.made, true)
	}
	return described
}

func (k *Keeper) mine(p *fleet.Policy) bool { return p.Recommender == k.Name }

// Follow gives the VPAs of a model what the policies say about their recommendations. As long
// as it is not known which policy is responsible, that stays as it was.
func Follow(policies *sizing.Policies, m *model.Model) {
	for _, v := range m.VPAs() {
		d := policies.For(v.Object)
		if d.Reason == reason.PolicyUnknown || d.Policy != nil && d.Policy.Unusable != "" {
			continue
		}
		var s model.Sizing
		if d.Policy != nil {
			s.Policy, s.Recipe = d.Policy.Name, d.Policy.Recipe
			s.OnlyRecipe = d.RestrictsUserVPAs() && v.Object.Annotations[recipe.Annotation] != ""
			// The recommendation of a VPA that a person wrote is never taken away.
			s.Observe = d.Mode == fleet.Observe && convert.MadeForPolicy(v.Object)
		}
		v.Sizing = s
	}
}

// Metrics are those of a Keeper.
type Metrics struct {
	VPAs      *prometheus.CounterVec // made VPAs by what was done with them
	Workloads *prometheus.GaugeVec   // by policy, mode and phase
	Degraded  *prometheus.GaugeVec   // workloads by policy
	Cores     *prometheus.GaugeVec   // that would be saved, by policy
	Bytes     *prometheus.GaugeVec   // that would be saved, by policy
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	auto := promauto.With(registry)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"policy"}, labels...))
	}
	return &Metrics{
		VPAs: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "loadline_recommender_made_vpas_total",
			Help: "VPAs made for SizingPolicies, by what was done with them: made, changed, removed, refused, error.",
		}, []string{"result"}),
		Workloads: gauge("loadline_policy_workloads",
			"Workloads that a SizingPolicy is responsible for, by the mode that counts for them and the phase of their rollout.", "mode", "phase"),
		Degraded: gauge("loadline_policy_degraded", "Workloads of a SizingPolicy whose changes were taken back repeatedly."),
		Cores: gauge("loadline_policy_saved_cores",
			"CPU that the running pods of a SizingPolicy would request less than now with what is recommended, over the containers that need less."),
		Bytes: gauge("loadline_policy_saved_bytes",
			"Memory that the running pods of a SizingPolicy would request less than now with what is recommended, over the containers that need less."),
	}
}

// forget takes away what is said of policies, before all of it is said anew.
func (m *Metrics) forget() {
	for _, g := range [...]*prometheus.GaugeVec{m.Workloads, m.Degraded, m.Cores, m.Bytes} {
		g.Reset()
	}
}
