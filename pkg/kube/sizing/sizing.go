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
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
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
// nil Policies has none, say For and Set.
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
	mu      sync.Mutex    // one reads them anew at a time
	last    atomic.Pointer[known]
}

// known is what was made of the policies after so many changes. It does not change.
type known struct {
	changes              uint64
	readable, namespaces bool // whether these could be read
	set                  *fleet.Set
	objects              map[string]*loadlinev1alpha1.SizingPolicy
}

// Watch returns the policies. It must be called before the factories start; the workloads
// are those of the second.
func Watch(vpas externalversions.SharedInformerFactory, core informers.SharedInformerFactory, workloads *target.Resolver, o fleet.Options) (*Policies, error) {
	policies, namespaces := vpas.Loadline().V1alpha1().SizingPolicies(), core.Core().V1().Namespaces()
	p := &Policies{
		workloads: workloads, options: o,
		policies: policies.Informer(), namespaces: namespaces.Informer(), lister: policies.Lister(), byName: namespaces.Lister(),
	}
	changed := func() { p.changes.Add(1) }
	handler, err := p.policies.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
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

// now returns the policies as of the last change.
func (p *Policies) now() *known {
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

func (p *Policies) current(k *known) bool {
	return k != nil && k.changes == p.changes.Load() && k.readable == p.Readable() && k.namespaces == p.namespaces.HasSynced()
}

func (p *Policies) read() *known {
	k := &known{changes: p.changes.Load(), readable: p.Readable(), namespaces: p.namespaces.HasSynced(), objects: map[string]*loadlinev1alpha1.SizingPolicy{}}
	objects, err := p.lister.List(labels.Everything())
	if err != nil {
		k.readable = false
	}
	values := make([]fleet.Policy, 0, len(objects))
	for _, o := range objects {
		v := convert.Policy(o)
		switch {
		case !k.readable:
			v.Unusable = "SizingPolicies cannot be read any more"
		case v.Namespaces.Selector != nil && !k.namespaces:
			v.Unusable, v.Namespaces.Selector = "namespaces cannot be read, and spec.namespaces.selector asks for their labels", everything{}
		}
		k.objects[o.Name], values = o, append(values, v)
	}
	k.set = fleet.NewSet(values, p.options)
	return k
}

// everything selects all namespaces.
type everything struct{}

// Matches reports true.
func (everything) Matches(map[string]string) bool { return true }

// Objects returns the policies by name. They must not be changed.
func (p *Policies) Objects() []*loadlinev1alpha1.SizingPolicy {
	k := p.now()
	all := make([]*loadlinev1alpha1.SizingPolicy, 0, len(k.objects))
	for _, o := range k.objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *loadlinev1alpha1.SizingPolicy) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Object returns a policy; nil: there is none. It must not be changed.
func (p *Policies) Object(name string) *loadlinev1alpha1.SizingPolicy { return p.now().objects[name] }

// For decides about the target of a VPA.
func (p *Policies) For(vpa *vpav1.VerticalPodAutoscaler) fleet.Decision {
	set, made := p.Set(), convert.MadeForPolicy(vpa)
	if set.Len() == 0 || vpa.Spec.TargetRef == nil { // as in most clusters
		if !made {
			return fleet.Decision{}
		}
		return set.For(fleet.Workload{VPA: Author(vpa, made)})
	}
	w := p.Describe(p.workload(target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)))
	w.VPA = Author(vpa, made)
	return set.For(w)
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
	switch {
	case !p.namespaces.HasSynced():
		namespace = &corev1.Namespace{} // a selector selects all as long as labels cannot be read
	case err != nil:
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

// Set returns all policies, to ask for many workloads.
func (p *Policies) Set() *fleet.Set {
	if p == nil {
		return nil
	}
	return p.now().set
}
