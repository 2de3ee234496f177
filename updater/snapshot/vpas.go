// Package snapshot converts informer caches to plain values.
//
// A loop iteration reads the VPAs first (ReadVPAs), then their pods (ReadPods). Queues read one VPA and
// its pods at a time (Controlling, Siblings). Objects that cause a panic are skipped.
package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
)

// Informer reports whether a cache is complete.
type Informer interface{ HasSynced() bool }

// Reader reads VPAs and pods from caches, except for the scale of custom workloads, which the target
// resolver requests. ReadVPAs and ReadPods are called by one goroutine.
type Reader struct {
	VPAs         vpalisters.VerticalPodAutoscalerLister
	VPAIndex     cache.Indexer // of VPAs, with target.Indexers
	Pods         corelisters.PodLister
	LimitRanges  corelisters.LimitRangeLister
	Targets      *target.Resolver
	Namespaces   flags.Namespaces    // to work on
	PerVPAConfig bool                // feature gate
	Generations  *target.Generations // whether a recommendation is for the current target

	states VersionCache[*State]
	logged map[target.Key]bool // owners of the last iteration whose pods have too many labels
}

// VPA is one VPA, in any mode.
type VPA struct {
	Object         *vpav1.VerticalPodAutoscaler
	Target         target.Key // zero: none
	Mode           disruption.Mode
	Generated      bool   // by the recommender, for a SizingPolicy
	Unreadable     string // why the object cannot be decoded, or empty
	Outdated       bool   // the recommendation may be for another target
	Rules          policy.Rules
	Recommendation map[string]resources.Bounds
	Floors         map[string]resources.List // minimum by container, included in Recommendation
	Ranges         *convert.LimitRanges      // of its namespace, shared

	err error // why it cannot be converted
}

// Key returns namespace and name.
func (v *VPA) Key() cache.ObjectName { return cache.MetaObjectToName(v.Object) }

// Find returns the index of a VPA among those of ReadVPAs; -1: it is not there.
func Find(vpas []VPA, name cache.ObjectName) int {
	i, found := slices.BinarySearchFunc(vpas, name, func(v VPA, name cache.ObjectName) int {
		return cmp.Or(cmp.Compare(v.Object.Namespace, name.Namespace), cmp.Compare(v.Object.Name, name.Name))
	})
	if !found {
		return -1
	}
	return i
}

// NewVPA converts a VPA. Nil ranges: its namespace has no LimitRanges.
func NewVPA(vpa *vpav1.VerticalPodAutoscaler, ranges *convert.LimitRanges) VPA {
	if ranges == nil {
		ranges = &convert.LimitRanges{}
	}
	return VPA{
		Object: vpa, Ranges: ranges, Mode: ModeOf(vpa), Generated: convert.MadeForPolicy(vpa), Unreadable: convert.Unreadable(vpa),
		Rules:          convert.Rules(vpa),
		Recommendation: convert.Recommendation(vpa.Status.Recommendation),
		Target:         TargetOf(vpa),
	}
}

// TargetOf returns the target of a VPA; zero: it has none.
func TargetOf(vpa *vpav1.VerticalPodAutoscaler) target.Key {
	if vpa.Spec.TargetRef == nil {
		return target.Key{}
	}
	return target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
}

// ModeOf returns the mode of a VPA. Unknown modes are Off.
func ModeOf(vpa *vpav1.VerticalPodAutoscaler) disruption.Mode {
	switch convert.Mode(vpa) {
	case vpav1.UpdateModeRecreate, vpav1.UpdateModeAuto:
		return disruption.Recreate
	case vpav1.UpdateModeInPlaceOrRecreate:
		return disruption.InPlaceOrRecreate
	case vpav1.UpdateModeInPlace:
		return disruption.InPlace
	case vpav1.UpdateModeInitial:
		return disruption.Initial
	}
	return disruption.Off
}

// Core returns the VPA as package disruption needs it, without pods. Its own time of a quick
// out-of-memory kill needs the feature gate PerVPAConfig.
func (v *VPA) Core(perVPAConfig bool) disruption.VPA {
	core := disruption.VPA{Namespace: v.Object.Namespace, Name: v.Object.Name, Mode: v.Mode, Outdated: v.Outdated, Requirements: convert.Requirements(v.Object)}
	p := v.Object.Spec.UpdatePolicy
	if p == nil {
		return core
	}
	if p.MinReplicas != nil {
		core.MinReplicas = int(*p.MinReplicas)
	}
	if p.EvictAfterOOMSeconds != nil && perVPAConfig {
		core.QuickOOM = time.Duration(*p.EvictAfterOOMSeconds) * time.Second
	}
	return core
}

// Pod returns a pod of the VPA with its targets.
func (v *VPA) Pod(pod *corev1.Pod) disruption.Pod {
	return convert.RunningPod(pod, v.Recommendation, v.Rules, v.Ranges.Ranges)
}

// ReadVPAs returns the VPAs of the served namespaces, by namespace and name.
func (r *Reader) ReadVPAs(ctx context.Context) ([]VPA, error) {
	objects, err := r.VPAs.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list VPAs: %w", err)
	}
	objects = slices.DeleteFunc(objects, func(o *vpav1.VerticalPodAutoscaler) bool { return !r.Namespaces.Serves(o.Namespace) })
	slices.SortFunc(objects, func(a, b *vpav1.VerticalPodAutoscaler) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	vpas, ranges := make([]VPA, len(objects)), map[string]*convert.LimitRanges{}
	for i, o := range objects {
		if vpas[i], err = r.readVPA(o, ranges); err != nil {
			vpas[i] = VPA{Object: o, Target: TargetOf(o), Mode: ModeOf(o), Generated: convert.MadeForPolicy(o), err: err}
		}
	}
	return vpas, nil
}

// readVPA converts a VPA. It keeps the LimitRanges by namespace.
func (r *Reader) readVPA(vpa *vpav1.VerticalPodAutoscaler, ranges map[string]*convert.LimitRanges) (v VPA, err error) {
	defer serving.Recover(&err)
	if ranges[vpa.Namespace] == nil {
		of, err := r.rangesOf(vpa.Namespace)
		if err != nil {
			return v, err
		}
		ranges[vpa.Namespace] = of
	}
	v = NewVPA(vpa, ranges[vpa.Namespace])
	v.Outdated = r.Generations.Outdated(vpa)
	return v, nil
}

// rangesOf combines the LimitRanges of a namespace.
func (r *Reader) rangesOf(namespace string) (*convert.LimitRanges, error) {
	objects, err := r.LimitRanges.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list LimitRanges of namespace %s: %w", namespace, err)
	}
	slices.SortFunc(objects, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	return new(convert.Ranges(objects)), nil
}

// Owner is the direct controller of pods, read once per iteration.
type Owner struct {
	Key      target.Key
	Name     string // for disruption.Group
	Replicas int    // wanted pods, disruption.Unknown, or 0: none or not found
	Rolling  bool

	top        target.Key                               // the topmost controller
	unreadable bool                                     // top is unknown
	vpa        int                                      // that targets top; -1: none
	selector   interface{ Matches(labels.Labels) bool } // set with vpa
	looked     bool                                     // Replicas and Rolling are set
}

// owners finds the controller and the VPA of pods in one iteration.
type owners struct {
	reader     *Reader
	vpas       []VPA
	active     map[string]bool // namespaces with a VPA whose scope is not None
	claims     target.Claims
	unreadable map[target.Key]string // targets that cannot be read, and a VPA of each
	byKey      map[target.Key]*Owner
	dropped    map[target.Key]bool // owners whose pods have too many labels
}

// newOwners indexes the VPAs by target. VPAs with scope None count only where they compete for the target
// of another VPA.
func (r *Reader) newOwners(ctx context.Context, vpas []VPA, scopes []Scope) *owners {
	o := &owners{
		reader: r, vpas: vpas, active: map[string]bool{}, unreadable: map[target.Key]string{},
		byKey: map[target.Key]*Owner{}, dropped: map[target.Key]bool{},
	}
	for i := range vpas {
		if scopes[i] != None {
			o.active[vpas[i].Object.Namespace] = true
		}
	}
	idle := map[target.Key]bool{} // targets of VPAs with scope None: whether another one has that target
	for i := range vpas {
		if scopes[i] == None && o.active[vpas[i].Object.Namespace] {
			idle[vpas[i].Target] = false
		}
	}
	for i := range vpas {
		if _, found := idle[vpas[i].Target]; found && scopes[i] != None {
			idle[vpas[i].Target] = true
		}
	}
	for i := range vpas {
		v := &vpas[i]
		if !o.active[v.Object.Namespace] || scopes[i] == None && !idle[v.Target] {
			continue
		}
		if err := o.claim(ctx, i); err != nil {
			klog.FromContext(ctx).V(3).Info("Skipping VPA: it or its target cannot be read", "vpa", klog.KObj(v.Object), "reason", err)
			if _, known := o.unreadable[v.Target]; !known && v.Mode != disruption.Off && v.Mode != disruption.Initial {
				o.unreadable[v.Target] = v.Object.Name
			}
		}
	}
	return o
}

// claim adds a VPA to the index.
func (o *owners) claim(ctx context.Context, i int) (err error) {
	defer serving.Recover(&err)
	v := &o.vpas[i]
	if v.err != nil {
		return v.err
	}
	selector, err := o.reader.Targets.Selector(ctx, v.Object.Namespace, v.Object.Spec.TargetRef)
	if err != nil {
		return err
	}
	c := target.ClaimOf(v.Object)
	c.Selector = selector
	o.claims.Put(c)
	return nil
}

// empty reports whether no pod can have a VPA.
func (o *owners) empty() bool {
	return o == nil || len(o.active) == 0 || o.claims.Len()+len(o.unreadable) == 0
}

// controlling returns the direct controller of a pod and the index of its VPA, or -1 and the reason with the
// name of the VPA that causes it.
func (o *owners) controlling(ctx context.Context, pod *corev1.Pod) (owner *Owner, vpa int, why reason.Reason, name string) {
	if owner = o.ownerOf(ctx, pod); owner == nil {
		return nil, -1, reason.NoVPA, ""
	}
	switch {
	case owner.unreadable:
		return owner, -1, reason.OwnerUnreadable, ""
	case owner.vpa >= 0 && !client.LabelsTooLarge(pod.Labels) && owner.selector.Matches(labels.Set(pod.Labels)):
		return owner, owner.vpa, "", ""
	}
	if client.Dropped(pod.Labels) {
		o.logDropped(ctx, owner, pod)
	}
	if name, known := o.unreadable[owner.top]; known {
		return owner, -1, reason.TargetUnreadable, name
	}
	return owner, -1, reason.NoVPA, ""
}

// ownerOf returns the direct controller of a pod; nil: it has none, or its namespace is not active.
func (o *owners) ownerOf(ctx context.Context, pod *corev1.Pod) *Owner {
	if o == nil || len(pod.OwnerReferences) == 0 || !o.active[pod.Namespace] {
		return nil
	}
	key, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !ok {
		return nil
	}
	if owner := o.byKey[key]; owner != nil {
		return owner
	}
	owner := &Owner{Key: key, Name: key.Namespace + "/" + key.String(), vpa: -1}
	o.byKey[key] = owner
	top, _, err := o.reader.Targets.Topmost(ctx, key)
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Skipping pods: their controller cannot be read", "namespace", key.Namespace, "owner", key, "reason", err)
	}
	owner.top, owner.unreadable = top, err != nil
	if claim, found := o.claims.Targeting(top); found {
		owner.vpa, owner.selector = Find(o.vpas, cache.NewObjectName(claim.Namespace, claim.Name)), claim.Selector
	}
	return owner
}

// lookUp sets Replicas and Rolling.
func (o *owners) lookUp(ctx context.Context, owner *Owner) {
	if !owner.looked {
		owner.looked, owner.Replicas, owner.Rolling = true, o.reader.group(ctx, owner.Key).Replicas, o.reader.Targets.Rolling(owner.top)
	}
}

// logDropped logs that the labels of the pods of an owner are too many to be cached, unless it was logged in the last
// iteration.
func (o *owners) logDropped(ctx context.Context, owner *Owner, pod *corev1.Pod) {
	if o.dropped[owner.Key] {
		return
	}
	o.dropped[owner.Key] = true
	if o.reader.logged[owner.Key] {
		return
	}
	klog.FromContext(ctx).Info("Skipping pods of a workload: no VPA selects pods with too many labels or containers, see kubectl loadline explain",
		"namespace", pod.Namespace, "workload", owner.top, "pod", pod.Name)
}

// group reads how many pods an owner wants. Owners that do not state it, such as a Job or a custom workload
// without scale, count by their live pods.
func (r *Reader) group(ctx context.Context, owner target.Key) disruption.Group {
	g := disruption.Group{Replicas: disruption.Unknown}
	replicas, known := r.Targets.Replicas(ctx, owner)
	switch {
	case known:
		g.Replicas = int(replicas)
	case statesReplicas(owner.Kind):
		g.Replicas = 0 // it is gone
	}
	return g
}

// statesReplicas reports whether owners of a kind state how many pods they want.
func statesReplicas(kind string) bool {
	switch kind {
	case "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController":
		return true
	}
	return false
}

// View is the input of disruption.Plan: the VPAs whose pods may change. VPAs whose policy is gone are in it with the pods
// that have a share mark, and are held.
type View struct {
	disruption.View

	// By VPA of the view: its index among all VPAs, and the states of its pods in their order.
	Index  []int
	States [][]*State

	Skipped []disruption.Skip // pods outside of the view
}
