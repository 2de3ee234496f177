// Package sizing reads SizingPolicies and answers which of them is responsible for a
// workload, from caches alone.
//
// The answer is that of package fleet; here the policies, the labels of namespaces and the
// workloads come from informers. What cannot be read changes nothing: without their
// definition, or without permission, there are no policies; those that were seen before hold
// what they select.
package sizing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	listers "loadline.dev/loadline/pkg/generated/listers/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Policies are the SizingPolicies of the cluster. All methods are safe for concurrent use. A
// nil Policies has none.
type Policies struct {
	workloads  *target.Resolver
	options    fleet.Options
	policies   cache.SharedIndexInformer
	namespaces cache.SharedIndexInformer
	lister     listers.SizingPolicyLister
	byName     corelisters.NamespaceLister
	heard      cache.InformerSynced // of policies
	synced     map[string]cache.InformerSynced

	changes atomic.Uint64 // of policies so far
	specs   atomic.Uint64 // of these, those that were not of a status alone
	mu      sync.Mutex    // one reads them anew at a time
	last    atomic.Pointer[Snapshot]
}

// Snapshot is what the policies were after so many changes. It does not change. A nil
// Snapshot has none.
type Snapshot struct {
	changes  uint64
	specs    uint64
	readable bool
	set      *fleet.Set
	objects  map[string]*loadlinev1alpha1.SizingPolicy
}

// Watch returns the policies. It must be called before the factories start; the workloads
// are those of the second.
func Watch(vpas externalversions.SharedInformerFactory, core informers.SharedInformerFactory, workloads *target.Resolver, o fleet.Options) (*Policies, error) {
	policies, namespaces := vpas.Loadline().V1alpha1().SizingPolicies(), core.Core().V1().Namespaces()
	p := &Policies{
		workloads: workloads, options: o,
		policies: policies.Informer(), namespaces: namespaces.Informer(), lister: policies.Lister(), byName: namespaces.Lister(),
	}
	changed := func(spec bool) {
		if spec {
			p.specs.Add(1)
		}
		p.changes.Add(1)
	}
	handler, err := p.policies.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed(true) },
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
	p.heard = handler.HasSynced
	policiesKnown, err := client.OptionalSync(p.policies, "SizingPolicies cannot be read, so there are none, and no pod is changed because of a VPA that was made for one")
	namespacesKnown, err2 := client.OptionalSync(p.namespaces, "Namespaces cannot be read, so a SizingPolicy that selects them by label holds all workloads of its kinds as they are")
	p.synced = map[string]cache.InformerSynced{
		"sizingpolicies": func() bool { return policiesKnown() && (p.heard() || !p.policies.HasSynced()) },
		"namespaces":     namespacesKnown,
	}
	return p, errors.Join(err, err2)
}

// Synced returns, by resource name, what reports whether it is known what there is, or that
// it cannot be read.
func (p *Policies) Synced() map[string]cache.InformerSynced { return p.synced }

// Readable reports whether all policies are known. As long as they are not, nobody knows that
// none selects a workload.
func (p *Policies) Readable() bool { return p.policies.HasSynced() && p.heard() }

// Now returns the policies as of the last change.
func (p *Policies) Now() *Snapshot {
	if p == nil {
		return nil
	}
	if k := p.last.Load(); p.current(k) {
		return k
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.last.Load()
	if !p.current(k) {
		k = p.read()
		p.last.Store(k)
	}
	return k
}

func (p *Policies) current(s *Snapshot) bool {
	return s != nil && s.changes == p.changes.Load() && s.readable == p.Readable()
}

// Holds reports whether policies still want what they wanted when a snapshot was taken.
func (p *Policies) Holds(s *Snapshot) bool {
	return s.specs == p.specs.Load() && s.readable == p.Readable()
}

func (p *Policies) read() *Snapshot {
	k := &Snapshot{changes: p.changes.Load(), specs: p.specs.Load(), readable: p.Readable(), objects: map[string]*loadlinev1alpha1.SizingPolicy{}}
	objects, err := p.lister.List(labels.Everything())
	if err != nil {
		k.readable = false
	}
	values := make([]fleet.Policy, 0, len(objects))
	for _, o := range objects {
		v := convert.Policy(o)
		if !k.readable {
			v.Unusable = "the recommender, the updater or the admission controller may not read SizingPolicies any more: give it list and watch on sizingpolicies"
		}
		k.objects[o.Name], values = o, append(values, v)
	}
	k.set = fleet.NewSet(values, p.options)
	return k
}

// Objects returns the policies, sorted by name. They must not be changed.
func (s *Snapshot) Objects() []*loadlinev1alpha1.SizingPolicy {
	return slices.SortedFunc(maps.Values(s.objects), func(a, b *loadlinev1alpha1.SizingPolicy) int { return strings.Compare(a.Name, b.Name) })
}

// Object returns a policy; nil: there is none. It must not be changed.
func (s *Snapshot) Object(name string) *loadlinev1alpha1.SizingPolicy {
	if s == nil {
		return nil
	}
	return s.objects[name]
}

// Set returns all policies, to ask for many workloads.
func (s *Snapshot) Set() *fleet.Set {
	if s == nil {
		return nil
	}
	return s.set
}

// For decides about the target of a VPA.
func (p *Policies) For(vpa *vpav1.VerticalPodAutoscaler) fleet.Decision {
	set, made := p.Now().Set(), convert.MadeForPolicy(vpa)
	if set.Len() == 0 || vpa.Spec.TargetRef == nil { // as in most clusters
		if !made {
			return fleet.Decision{}
		}
		return Decide(set, fleet.Workload{VPA: Author(vpa, made)})
	}
	w := p.Describe(p.workload(target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)))
	w.VPA = Author(vpa, made)
	return Decide(set, w)
}

// Decide decides about a workload. A mode that is not served yet, whoever asks for it, acts
// as Recommend.
func Decide(set *fleet.Set, w fleet.Workload) fleet.Decision {
	d := set.For(w)
	if d.Mode > fleet.Recommend {
		if d.Mode = fleet.Recommend; d.Reason == "" {
			d.Reason = fleet.RecommendOnly
		}
	}
	return d
}

// workload returns what is known of a workload: of one that cannot be selected by its labels
// the name.
func (p *Policies) workload(key target.Key) target.Workload {
	if w, found := p.workloads.Workload(key); found {
		return w
	}
	return target.Workload{Key: key}
}

// Describe returns a workload without its VPA as package fleet wants it.
func (p *Policies) Describe(w target.Workload) fleet.Workload {
	namespace, err := p.byName.Get(w.Key.Namespace)
	if err != nil || !p.namespaces.HasSynced() {
		namespace = nil
	}
	return describe(w, namespace)
}

// describe does so; a namespace that is nil is not known.
func describe(w target.Workload, namespace *corev1.Namespace) fleet.Workload {
	described := fleet.Workload{
		Group: w.Key.Group, Kind: w.Key.Kind, Namespace: w.Key.Namespace, Name: w.Key.Name,
		Labels: w.Labels, Annotations: w.Annotations, TemplateAnnotations: w.TemplateAnnotations,
	}
	if namespace != nil {
		if described.NamespaceLabels = namespace.Labels; described.NamespaceLabels == nil {
			described.NamespaceLabels = map[string]string{} // it has none, which is known
		}
	}
	return described
}

// Author returns a VPA as package fleet wants it; made is convert.MadeForPolicy.
func Author(vpa *vpav1.VerticalPodAutoscaler, made bool) fleet.VPA {
	if made {
		return fleet.VPA{Author: fleet.Loadline, Annotations: vpa.Annotations}
	}
	mode := convert.Mode(vpa)
	return fleet.VPA{Author: fleet.Person, Annotations: vpa.Annotations, Passive: mode == vpav1.UpdateModeOff || mode == vpav1.UpdateModeInitial}
}
