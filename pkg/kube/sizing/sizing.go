// Package sizing finds the SizingPolicy that is responsible for a workload and the recorded state
// of its rollout.
//
// Policies and Records use only informer caches, and Reader uses API requests. The rules are in
// packages fleet and rollout. Unreadable objects cause no changes: without the CRD or without
// permission there are no policies, and policies that were seen before hold the workloads that they
// select.
package sizing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	listers "loadline.dev/loadline/pkg/generated/listers/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Policies holds the SizingPolicies. It is safe for concurrent use. A nil Policies has none.
type Policies struct {
	workloads     *target.Resolver
	options       fleet.Options
	policies      cache.SharedIndexInformer
	namespaces    cache.SharedIndexInformer
	lister        listers.SizingPolicyLister
	byName        corelisters.NamespaceLister
	handlerSynced cache.InformerSynced      // the event handler has seen all policies
	pods          cache.SharedIndexInformer // nil without WatchPods
	annotated     annotatedPods
	synced        map[string]cache.InformerSynced

	nonEmpty  chan struct{} // closed when the first policy exists
	closeOnce sync.Once     // guards the close of nonEmpty
	changes   atomic.Uint64 // number of policy changes so far
	specs     atomic.Uint64 // the ones that changed more than a status
	mu        sync.Mutex    // serializes reads of the policies
	cached    atomic.Pointer[Snapshot]
}

// Snapshot holds the policies after a number of changes. It is immutable. A nil Snapshot has none.
type Snapshot struct {
	changes  uint64
	specs    uint64
	readable bool
	set      *fleet.Set
	policies map[string]*Policy
}

// Policy is a SizingPolicy, converted once per change of its object. It must not be modified.
type Policy struct {
	Object   *loadlinev1alpha1.SizingPolicy
	Settings rollout.Settings
	Safety   rollout.Safety // reverts harm by default in modes that change pods
}

// Watch reads policies with the first factory and namespaces with the second. Call it before they
// start. The second may start with the first policy, then unknown namespaces hold workloads.
func Watch(vpas externalversions.SharedInformerFactory, core informers.SharedInformerFactory, workloads *target.Resolver, o fleet.Options) (*Policies, error) {
	policies, namespaces := vpas.Loadline().V1alpha1().SizingPolicies(), core.Core().V1().Namespaces()
	p := &Policies{
		workloads: workloads, options: o, nonEmpty: make(chan struct{}), annotated: annotatedPods{namespaces: map[string]*namespaceAnnotations{}},
		policies: policies.Informer(), namespaces: namespaces.Informer(), lister: policies.Lister(), byName: namespaces.Lister(),
	}
	changed := func(spec bool) {
		if spec {
			p.specs.Add(1)
		}
		p.changes.Add(1)
	}
	handler, err := p.policies.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {
			changed(true)
			p.closeOnce.Do(func() { close(p.nonEmpty) })
		},
		UpdateFunc: func(before, after any) {
			b, _ := before.(*loadlinev1alpha1.SizingPolicy)
			a, _ := after.(*loadlinev1alpha1.SizingPolicy)
			changed(a == nil || b == nil || !apiequality.Semantic.DeepEqual(b.Spec, a.Spec) || !maps.Equal(b.Annotations, a.Annotations))
		},
		DeleteFunc: func(any) { changed(true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch SizingPolicies: %w", err)
	}
	p.handlerSynced = handler.HasSynced
	policiesKnown, err := client.OptionalSync(p.policies, "SizingPolicies cannot be read, so none apply, and generated VPAs change no pods")
	namespacesKnown, err2 := client.OptionalSync(p.namespaces, "Namespaces cannot be read, so a SizingPolicy that selects them by label holds all workloads of its kinds")
	p.synced = map[string]cache.InformerSynced{
		"sizingpolicies": func() bool { return policiesKnown() && (p.handlerSynced() || !p.policies.HasSynced()) },
		"namespaces":     namespacesKnown,
	}
	return p, errors.Join(err, err2)
}

// NonEmpty returns a channel that is closed when the first policy exists, and stays closed.
func (p *Policies) NonEmpty() <-chan struct{} { return p.nonEmpty }

// Synced reports, by resource name, whether the cache is synced or the resource is unreadable.
func (p *Policies) Synced() map[string]cache.InformerSynced { return p.synced }

// Readable reports whether all policies are known. Until then an unknown policy may select any
// workload.
func (p *Policies) Readable() bool { return p.policies.HasSynced() && p.handlerSynced() }

// Snapshot returns the policies as of the last change.
func (p *Policies) Snapshot() *Snapshot {
	if p == nil {
		return nil
	}
	if k := p.cached.Load(); p.current(k) {
		return k
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.cached.Load()
	if !p.current(k) {
		k = p.read(k)
		p.cached.Store(k)
	}
	return k
}

func (p *Policies) current(s *Snapshot) bool {
	return s != nil && s.changes == p.changes.Load() && s.readable == p.Readable()
}

// SpecsUnchanged reports whether specs and annotations of all policies equal a snapshot.
func (p *Policies) SpecsUnchanged(s *Snapshot) bool {
	return s.specs == p.specs.Load() && s.readable == p.Readable()
}

func (p *Policies) read(last *Snapshot) *Snapshot {
	k := &Snapshot{changes: p.changes.Load(), specs: p.specs.Load(), readable: p.Readable(), policies: map[string]*Policy{}}
	objects, err := p.lister.List(labels.Everything())
	if err != nil {
		k.readable = false
	}
	values := make([]fleet.Policy, 0, len(objects))
	for _, o := range objects {
		v := convert.Policy(o)
		if !k.readable {
			v.Unusable = "the recommender, the updater or the admission controller has lost permission to read SizingPolicies: grant list and watch on sizingpolicies"
		}
		one := last.Policy(o.Name)
		if one == nil || one.Object != o {
			one = &Policy{Object: o, Settings: convert.RolloutSettings(o), Safety: convert.Safety(o)}
		}
		k.policies[o.Name], values = one, append(values, v)
	}
	k.set = fleet.NewSet(values, p.options)
	return k
}

// Objects returns the policies, sorted by name. They must not be modified.
func (s *Snapshot) Objects() []*loadlinev1alpha1.SizingPolicy {
	objects := make([]*loadlinev1alpha1.SizingPolicy, 0, len(s.policies))
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		objects = append(objects, s.policies[name].Object)
	}
	return objects
}

// Policy returns a policy by name, or nil.
func (s *Snapshot) Policy(name string) *Policy {
	if s == nil {
		return nil
	}
	return s.policies[name]
}

// Object returns the object of a policy by name, or nil. It must not be modified.
func (s *Snapshot) Object(name string) *loadlinev1alpha1.SizingPolicy {
	if p := s.Policy(name); p != nil {
		return p.Object
	}
	return nil
}

// ConditionSharing of a SizingPolicy reports whether its pods share the node headroom. The updater
// writes it if spec.sharing.mode is On.
const ConditionSharing = "Sharing"

// IsSharing reports whether condition Sharing is true for the current generation of a policy.
func (s *Snapshot) IsSharing(policy string) bool {
	o := s.Object(policy)
	if o == nil {
		return false
	}
	c := meta.FindStatusCondition(o.Status.Conditions, ConditionSharing)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.Generation
}

// Set returns all policies, for decisions about many workloads.
func (s *Snapshot) Set() *fleet.Set {
	if s == nil {
		return nil
	}
	return s.set
}

// For returns the decision for the target of a VPA.
func (p *Policies) For(vpa *vpav1.VerticalPodAutoscaler) fleet.Decision {
	a, _ := p.decide(p.Snapshot().Set(), vpa, convert.IsGenerated(vpa), nil)
	return a.Decision
}

// ForPod returns the decision for a pod at creation, like For for the target of its VPA.
func (p *Policies) ForPod(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod) fleet.Decision {
	a, _ := p.decide(p.Snapshot().Set(), vpa, convert.IsGenerated(vpa), pod)
	return a.Decision
}

// TargetDecision is the decision for the target of a VPA.
type TargetDecision struct {
	fleet.Decision

	Workload    target.Workload
	Selectable  bool   // the target exists and policies can select it
	Conflicting string // another policy of the same priority, see fleet.Set.ConflictingPolicy
}

// ForTarget is For with more details. The value generated is convert.IsGenerated.
func (p *Policies) ForTarget(vpa *vpav1.VerticalPodAutoscaler, generated bool) TargetDecision {
	set := p.Snapshot().Set()
	a, w := p.decide(set, vpa, generated, nil)
	if a.Selectable && a.Policy != nil {
		w.VPA = fleet.VPA{}
		a.Conflicting = set.ConflictingPolicy(a.Policy, w)
	}
	return a
}

// decide returns no rival. The pod of the workload may be nil.
func (p *Policies) decide(set *fleet.Set, vpa *vpav1.VerticalPodAutoscaler, generated bool, pod *corev1.Pod) (a TargetDecision, w fleet.Workload) {
	if set.Len() == 0 || vpa.Spec.TargetRef == nil { // as in most clusters
		if generated {
			a.Decision = set.Decide(fleet.Workload{VPA: FleetVPA(vpa, generated)})
		}
		return a, w
	}
	key := target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	if a.Workload, a.Selectable = p.workloads.Workload(key); !a.Selectable {
		a.Workload.Key = key
	}
	w = p.FleetWorkload(a.Workload)
	w.VPA = FleetVPA(vpa, generated)
	if pod != nil && !fleet.Listed(key.Group, key.Kind) {
		w.TemplateAnnotations = pod.Annotations
	}
	a.Decision = set.Decide(w)
	return a, w
}

// MayChangePods reports whether a policy may let generated VPAs change pods of a namespace.
func (p *Policies) MayChangePods(namespace string) bool {
	set := p.Snapshot().Set()
	return set.Len() > 0 && set.MayChangePods(namespace, namespaceLabels(p.namespace(namespace)))
}

// Target returns the target of a VPA, or false if it is missing, unknown, or not selectable.
func (p *Policies) Target(vpa *vpav1.VerticalPodAutoscaler) (target.Workload, bool) {
	if vpa.Spec.TargetRef == nil {
		return target.Workload{}, false
	}
	return p.workloads.Workload(target.RefKey(vpa.Namespace, vpa.Spec.TargetRef))
}

// FleetWorkload converts a workload for package fleet, without its VPA.
func (p *Policies) FleetWorkload(w target.Workload) fleet.Workload {
	described := fleetWorkload(w, p.namespace(w.Key.Namespace))
	if !fleet.Listed(w.Key.Group, w.Key.Kind) {
		described.TemplateAnnotations = p.templateAnnotations(w.Key)
	}
	return described
}

func (p *Policies) namespace(name string) *corev1.Namespace {
	namespace, err := p.byName.Get(name)
	if err != nil || !p.namespaces.HasSynced() {
		return nil
	}
	return namespace
}

// fleetWorkload treats a nil namespace as unknown.
func fleetWorkload(w target.Workload, namespace *corev1.Namespace) fleet.Workload {
	return fleet.Workload{
		Group: w.Key.Group, Kind: w.Key.Kind, Namespace: w.Key.Namespace, Name: w.Key.Name,
		Labels: w.Labels, LabelsUnknown: client.LabelsTooLarge(w.Labels), Annotations: w.Annotations, TemplateAnnotations: w.TemplateAnnotations,
		NamespaceLabels: namespaceLabels(namespace),
	}
}

// namespaceLabels returns nil if the labels are unknown.
func namespaceLabels(namespace *corev1.Namespace) map[string]string {
	switch {
	case namespace == nil, client.LabelsTooLarge(namespace.Labels):
		return nil
	case namespace.Labels == nil:
		return map[string]string{} // known to have none
	}
	return namespace.Labels
}

// FleetVPA converts a VPA for package fleet. The value generated is convert.IsGenerated.
func FleetVPA(vpa *vpav1.VerticalPodAutoscaler, generated bool) fleet.VPA {
	if generated {
		return fleet.VPA{Origin: fleet.GeneratedVPA, Annotations: vpa.Annotations}
	}
	mode := convert.Mode(vpa)
	return fleet.VPA{Origin: fleet.UserVPA, Annotations: vpa.Annotations, Passive: mode == vpav1.UpdateModeOff || mode == vpav1.UpdateModeInitial}
}
