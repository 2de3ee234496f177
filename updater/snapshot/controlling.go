package snapshot

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
)

// Controlling returns the VPA that controls a pod, by the same rule as the webhook, and false if
// there is none. It returns an error if this is currently unknown. VPAs that change no pods count
// only with idle.
func (r *Reader) Controlling(ctx context.Context, pod *corev1.Pod, idle bool) (VPA, bool, error) {
	owner, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !ok {
		return VPA{}, false, nil
	}
	top, found, err := r.Targets.Topmost(ctx, owner)
	if err != nil || !found {
		return VPA{}, false, err
	}
	chosen, found, err := r.strongest(top, idle)
	if err != nil || !found {
		return VPA{}, false, err
	}
	if selects, err := r.selects(ctx, chosen, top, pod); err != nil || !selects {
		return VPA{}, false, err
	}
	object, err := r.VPAs.VerticalPodAutoscalers(pod.Namespace).Get(chosen.Name)
	if err != nil {
		return VPA{}, false, err
	}
	ranges, err := r.rangesOf(pod.Namespace)
	if err != nil {
		return VPA{}, false, err
	}
	return NewVPA(object, ranges), true, nil
}

// strongest returns the strongest VPA of a target. VPAs that change no pods count only with idle.
func (r *Reader) strongest(top target.Key, idle bool) (strongest target.Claim, found bool, err error) {
	vpas, err := target.VPAsOf(r.VPAIndex, top)
	if err != nil {
		return target.Claim{}, false, fmt.Errorf("find the VPAs of %s: %w", top, err)
	}
	for _, vpa := range vpas {
		if c := target.ClaimOf(vpa); (idle || !c.Idle) && (!found || target.CompareClaims(c, strongest) < 0) {
			strongest, found = c, true
		}
	}
	return strongest, found, nil
}

// selects reports whether the strongest VPA of a target controls a pod.
func (r *Reader) selects(ctx context.Context, c target.Claim, top target.Key, pod *corev1.Pod) (bool, error) {
	if client.LabelsTooLarge(pod.Labels) { // no VPA controls the pod, so its target is not read
		return false, nil
	}
	selector, err := r.Targets.Selector(ctx, c.Namespace, c.VPA.Spec.TargetRef)
	if err != nil {
		return false, err
	}
	c.Selector = selector
	var index target.Claims
	index.Put(c)
	_, found := index.Controlling(top, pod.Labels)
	return found, nil
}

// ControlsAny reports whether a named VPA controls a matching pod of the namespace.
func (r *Reader) ControlsAny(ctx context.Context, namespace string, vpas map[string]bool, matches func(*corev1.Pod) bool) bool {
	pods, _ := r.Pods.Pods(namespace).List(labels.Everything()) // fails only without an index
	strongest := map[target.Key]target.Claim{}
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		if !matches(pod) {
			return false
		}
		owner, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
		if !ok {
			return false
		}
		top, found, err := r.Targets.Topmost(ctx, owner)
		if err != nil || !found {
			return false
		}
		c, known := strongest[top]
		if !known {
			if c, _, err = r.strongest(top, true); err != nil {
				return false
			}
			strongest[top] = c
		}
		if !vpas[c.Name] {
			return false
		}
		selects, err := r.selects(ctx, c, top, pod)
		return err == nil && selects
	})
}

// Siblings returns the plan input for a VPA and its pods with the same owner as the given pod.
func (r *Reader) Siblings(ctx context.Context, vpa *VPA, pod *corev1.Pod) (disruption.VPA, error) {
	owner, _ := target.Controller(pod.Namespace, pod.OwnerReferences)
	pods, err := r.Pods.Pods(pod.Namespace).List(labels.Everything())
	if err != nil {
		return disruption.VPA{}, fmt.Errorf("list pods of namespace %s: %w", pod.Namespace, err)
	}
	v := vpa.Core(r.PerVPAConfig)
	v.Groups = []disruption.Group{r.group(ctx, owner)}
	for _, p := range pods {
		if o, ok := target.Controller(p.Namespace, p.OwnerReferences); ok && o == owner && p.DeletionTimestamp == nil {
			v.Pods = append(v.Pods, vpa.Pod(p))
		}
	}
	return v, nil
}

// Owner is the direct controller of pods, read once per iteration.
type Owner struct {
	Key      target.Key
	Name     string // for disruption.Group
	Replicas int    // desired pods, disruption.Unknown, or 0: none or not found
	Rolling  bool

	top        target.Key                               // the topmost controller
	unreadable bool                                     // top is unknown
	vpa        int                                      // index of the VPA with target top; -1: none
	selector   interface{ Matches(labels.Labels) bool } // set with vpa
	resolved   bool                                     // Replicas and Rolling are set
}

// owners finds the controller and the VPA of pods in one iteration.
type owners struct {
	reader     *Reader
	vpas       []VPA
	active     map[string]bool // namespaces with a VPA in any scope except None
	claims     target.Claims
	unreadable map[target.Key]string // unreadable targets with the name of one of their VPAs
	byKey      map[target.Key]*Owner
	dropped    map[target.Key]bool // owners with too many labels on their pods
}

// newOwners indexes the VPAs by target. A VPA with scope None is indexed only if a VPA in scope has
// the same target, because it may take precedence.
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
	idle := map[target.Key]bool{} // by target of VPAs with scope None: another VPA has the same target
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

// controlling returns the direct controller of a pod and the index of its VPA. Without a VPA the
// index is -1, and why is the reason. name is set only for TargetUnreadable.
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

// ownerOf returns nil without a controller, or if the namespace is not active.
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
	if claim, found := o.claims.Strongest(top); found {
		owner.vpa, owner.selector = Find(o.vpas, cache.NewObjectName(claim.Namespace, claim.Name)), claim.Selector
	}
	return owner
}

func (o *owners) readReplicas(ctx context.Context, owner *Owner) {
	if !owner.resolved {
		owner.resolved, owner.Replicas, owner.Rolling = true, o.reader.group(ctx, owner.Key).Replicas, o.reader.Targets.Rolling(owner.top)
	}
}

// logDropped logs a pod with too many labels to be cached, unless the last iteration did.
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

// group returns disruption.Unknown replicas for Jobs and custom workloads without scale.
func (r *Reader) group(ctx context.Context, owner target.Key) disruption.Group {
	g := disruption.Group{Replicas: disruption.Unknown}
	replicas, known := r.Targets.Replicas(ctx, owner)
	switch {
	case known:
		g.Replicas = int(replicas)
	case hasReplicas(owner.Kind):
		g.Replicas = 0 // deleted
	}
	return g
}

func hasReplicas(kind string) bool {
	switch kind {
	case "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController":
		return true
	}
	return false
}
