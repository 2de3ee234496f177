package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
)

// Scope is the data that an iteration needs about the pods of a VPA.
type Scope uint8

// The scopes.
const (
	None   Scope = iota // nothing
	Count               // their number
	Names               // their names
	Shared              // names, and the state of pods with a share mark
	States              // everything
)

// Pods are the pods of the VPAs of one iteration.
type Pods struct {
	ByVPA   [][]Pod           // by VPA index, sorted by name
	Skipped []disruption.Skip // pods with an unknown VPA or state, and pods of unreadable targets
	NoVPA   int               // pods without a VPA that changes running pods

	owners *owners
}

// Pod is a pod of a VPA.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	State           *State // nil: not in scope
	Owner           *Owner
	Protected       reason.Reason // why it or its workload forbids an eviction; empty: not protected

	vpa     int
	version string
	labels  map[string]string
}

// State is derived from the pod object and the declared memory of its last state. It is cached and
// must not be modified.
type State struct {
	disruption.Pod // without group and targets

	Sizing *policy.Pod // input of policy.Fit, without containers
	notes  *notes      // nil: none
}

// notes are values of rare annotations.
type notes struct {
	changedAt time.Time
	unsent    bool // the change was noted, but not made
	mark      *sharing.Mark
	declared  string
}

// ChangedAt returns the time of the noted change in milliseconds, or zero without a note.
func (s *State) ChangedAt() time.Time {
	if s.notes == nil {
		return time.Time{}
	}
	return s.notes.changedAt
}

// Unsent reports whether the change noted on the pod was not made.
func (s *State) Unsent() bool { return s.notes != nil && s.notes.unsent }

// Mark returns the share mark of the pod, or nil.
func (s *State) Mark() *sharing.Mark {
	if s.notes == nil {
		return nil
	}
	return s.notes.mark
}

func (s *State) declared() string {
	if s.notes == nil {
		return ""
	}
	return s.notes.declared
}

// EqualResources reports whether two pods of a VPA have equal targets.
func (s *State) EqualResources(o *State) bool {
	return slices.EqualFunc(s.Containers, o.Containers, equalContainers) && equalSizing(s.Sizing, o.Sizing)
}

func equalSizing(a, b *policy.Pod) bool {
	return a.StaysBurstable == b.StaysBurstable && a.InitTotals == b.InitTotals && a.Rounded == b.Rounded
}

var errGone = errors.New("the pod is gone")

// ReadPods returns the pods of VPAs to the extent of their scopes.
func (r *Reader) ReadPods(ctx context.Context, vpas []VPA, scopes []Scope) (Pods, error) {
	p := Pods{ByVPA: make([][]Pod, len(vpas)), owners: r.newOwners(ctx, vpas, scopes)}
	defer func() { r.states.Swap(); r.logged = p.owners.dropped }()
	if p.owners.empty() {
		return p, nil
	}
	listed, err := r.listPods(ctx, &p, scopes)
	if err != nil {
		return p, fmt.Errorf("list pods: %w", err)
	}
	for len(listed) > 0 {
		vpa, n := listed[0].vpa, 1
		for n < len(listed) && listed[n].vpa == vpa {
			n++
		}
		p.ByVPA[vpa] = r.convertPods(ctx, &p, listed[:n:n], scopes[vpa])
		listed = listed[n:]
	}
	slices.SortFunc(p.Skipped, func(a, b disruption.Skip) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.VPA, b.VPA), cmp.Compare(a.Pod, b.Pod))
	})
	return p, nil
}

// listPods returns the pods in scope by VPA and name, without their state.
func (r *Reader) listPods(ctx context.Context, p *Pods, scopes []Scope) ([]Pod, error) {
	listed := make([]Pod, 0, len(r.states.current)+8)
	each := klog.FromContext(ctx).V(6)
	err := client.EachPod(r.Pods, func(pod *corev1.Pod) {
		if pod.DeletionTimestamp != nil {
			return
		}
		owner, vpa, why, name := p.owners.controlling(ctx, pod)
		switch {
		case why == reason.NoVPA || vpa >= 0 && scopes[vpa] <= Count: // nearly all pods of many clusters
			p.NoVPA++
			if each.Enabled() {
				each.Info("Skipping pod", "pod", klog.KObj(pod), "reason", reason.NoVPA)
			}
		case why != "":
			p.skip(disruption.Subject{Namespace: pod.Namespace, VPA: name, Pod: pod.Name, UID: string(pod.UID)}, why)
		default:
			listed = append(listed, Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Owner: owner, vpa: vpa, version: pod.ResourceVersion, labels: pod.Labels})
		}
	})
	slices.SortFunc(listed, func(a, b Pod) int { return cmp.Or(cmp.Compare(a.vpa, b.vpa), cmp.Compare(a.Name, b.Name)) })
	return listed, err
}

func (p *Pods) skip(s disruption.Subject, why reason.Reason) {
	p.Skipped = append(p.Skipped, disruption.Skip{Subject: s, Reason: why})
}

// Controlling returns the direct controller of a pod and the index of its VPA, or -1 without a VPA.
func (p *Pods) Controlling(ctx context.Context, pod *corev1.Pod) (*Owner, int) {
	owner, vpa, _, _ := p.owners.controlling(ctx, pod)
	return owner, vpa
}

// Replicas returns the desired replicas of an owner, see Owner.Replicas.
func (p *Pods) Replicas(ctx context.Context, owner *Owner) int {
	p.owners.readReplicas(ctx, owner)
	return owner.Replicas
}

// convertPods sets the state of the pods of one VPA. It drops pods without a required state.
func (r *Reader) convertPods(ctx context.Context, p *Pods, pods []Pod, scope Scope) []Pod {
	if scope == Names {
		return pods
	}
	kept := pods[:0]
	var last *State
	for i := range pods {
		pod := &pods[i]
		if scope == Shared && !r.marked(pod) {
			kept = append(kept, *pod)
			continue
		}
		err := serving.Guard(func() (err error) {
			if pod.State, err = r.states.Get(pod.UID, pod.version, func(previous *State) (*State, error) { return r.newState(pod, previous, last) }); err != nil {
				return err
			}
			p.owners.readReplicas(ctx, pod.Owner)
			pod.Protected = r.protection(pod)
			return nil
		})
		switch {
		case errors.Is(err, errGone):
			continue
		case err != nil:
			klog.FromContext(ctx).Error(err, "Skipping pod: it cannot be converted", "pod", klog.KRef(pod.Namespace, pod.Name))
			p.skip(disruption.Subject{Namespace: pod.Namespace, VPA: p.owners.vpas[pod.vpa].Object.Name, Pod: pod.Name, UID: string(pod.UID)}, reason.InternalError)
			continue
		}
		last = pod.State
		kept = append(kept, *pod)
	}
	protectOlder(kept)
	return kept
}

func (r *Reader) marked(pod *Pod) bool {
	object, err := r.Pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || object.UID != pod.UID {
		return false
	}
	_, marked := convert.ParseShared(object)
	return marked
}

// newState returns the state of a pod. previous is its last state. Values that equal those of last,
// another pod of the VPA, are shared with it.
func (r *Reader) newState(of *Pod, previous, neighbor *State) (*State, error) {
	pod, err := r.Pods.Pods(of.Namespace).Get(of.Name)
	if err != nil || pod.UID != of.UID {
		return nil, errGone
	}
	n := notes{declared: pod.Annotations[convert.DeclaredAnnotation]}
	if previous != nil { // another controller may have removed the annotation
		n.declared = convert.StricterDeclared(previous.declared(), n.declared)
	}
	pod = withDeclared(pod, n.declared)
	core, sizing := convert.PodState(pod)
	state := &State{Pod: core, Sizing: &sizing}
	if neighbor != nil && slices.EqualFunc(neighbor.Containers, core.Containers, equalContainers) && slices.Equal(neighbor.FixedContainers, core.FixedContainers) {
		state.Containers, state.FixedContainers = neighbor.Containers, neighbor.FixedContainers
	}
	if neighbor != nil && equalSizing(neighbor.Sizing, &sizing) {
		state.Sizing = neighbor.Sizing
	} else if sizing.InitTotals == (policy.InitTotals{}) && sizing.Rounded == (resources.List{}) {
		state.Sizing = plainSizing[sizing.StaysBurstable]
	}
	if mark, marked := convert.ParseShared(pod); marked {
		n.mark = &mark
	}
	n.changedAt, n.unsent = changedAt(pod)
	if n != (notes{}) {
		state.notes = &n
	}
	return state, nil
}

// plainSizing are the sizings of nearly all pods, by StaysBurstable.
var plainSizing = map[bool]*policy.Pod{false: {}, true: {StaysBurstable: true}}

// equalContainers compares containers without targets.
func equalContainers(a, b disruption.Container) bool {
	return a.Observed == b.Observed && a.Actual == b.Actual && a.Spec == b.Spec && a.Restarts == b.Restarts && a.OOM == b.OOM
}

func withDeclared(pod *corev1.Pod, declared string) *corev1.Pod {
	if pod.Annotations[convert.DeclaredAnnotation] == declared {
		return pod
	}
	changed := *pod
	changed.Annotations = maps.Clone(pod.Annotations)
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[convert.DeclaredAnnotation] = declared
	return &changed
}

// changedAt returns zero without a readable note. unsent: the generation is from before the change.
func changedAt(pod *corev1.Pod) (at time.Time, unsent bool) {
	if !convert.HasNotedChange(pod) {
		return time.Time{}, false
	}
	noted, err := convert.ParseChange(pod)
	if err != nil || noted.At.IsZero() {
		return time.Time{}, false
	}
	return time.UnixMilli(noted.At.UnixMilli()).UTC(), noted.Generation != 0 && noted.Generation == pod.Generation
}

// protection returns why a pod must not be evicted, such as an older revision, or empty.
func (r *Reader) protection(pod *Pod) reason.Reason {
	why := pod.State.Protected
	if why == reason.CountsAsFailure && r.Targets.IgnoresDisruption(pod.Owner.Key) {
		why = ""
	}
	if why == "" && !r.Targets.KeepsRevision(pod.Owner.Key, pod.Name, pod.labels) {
		why = reason.OlderRevision
	}
	return why
}

// revision returns the revision of a pod with an owner of a custom kind, or empty.
func (p *Pod) revision() string {
	if p.State == nil || !p.Owner.Key.Custom() {
		return ""
	}
	return cmp.Or(p.labels[appsv1.ControllerRevisionHashLabelKey], p.labels[appsv1.DefaultDeploymentUniqueLabelKey])
}

// protectOlder protects the pods of custom workloads with a revision other than the newest pod.
// Custom kinds do not publish the revision of new pods.
func protectOlder(pods []Pod) {
	var newest map[*Owner]*Pod
	for i := range pods {
		p := &pods[i]
		if p.revision() == "" {
			continue
		}
		if newest == nil {
			newest = map[*Owner]*Pod{}
		}
		if n := newest[p.Owner]; n == nil || p.State.Created.After(n.State.Created) {
			newest[p.Owner] = p
		}
	}
	for i := range pods {
		p := &pods[i]
		if n := newest[p.Owner]; n != nil && p.Protected == "" && p.revision() != "" && p.revision() != n.revision() {
			p.Protected = reason.OlderRevision
		}
	}
}

// Claims reports whether a VPA can control pods: its target is known, and its scope is not None.
func (p *Pods) Claims(vpa int) bool {
	return p.owners.vpas[vpa].err == nil && p.owners.claims.Has(p.owners.vpas[vpa].Key())
}

// ErrStale is the error for a pod that changed since the caches were read. Nothing was written.
var ErrStale = errors.New("the pod was changed since it was read")

// CurrentPod returns the current version of a pod, or nil if it is gone.
func CurrentPod(pods corelisters.PodLister, of disruption.Subject) *corev1.Pod {
	pod, err := pods.Pods(of.Namespace).Get(of.Pod)
	if err != nil || string(pod.UID) != of.UID {
		return nil
	}
	return pod
}

// VPAOf returns the name of the VPA of a pod.
func VPAOf(s disruption.Subject) cache.ObjectName { return cache.NewObjectName(s.Namespace, s.VPA) }

// VersionCache keeps a converted object while its resourceVersion stays the same. The zero value is empty.
type VersionCache[V any] struct{ current, next map[types.UID]versioned[V] }

type versioned[V any] struct {
	version string
	value   V
}

// Get returns the value of an object. It converts the object if the version is new or empty, given the
// previous value or the zero value. The value is dropped if convert fails.
func (c *VersionCache[V]) Get(uid types.UID, version string, convert func(previous V) (V, error)) (V, error) {
	if c.next == nil {
		c.next = make(map[types.UID]versioned[V], len(c.current))
	}
	known, found := c.current[uid]
	if found && known.version == version && version != "" {
		c.next[uid] = known
		return known.value, nil
	}
	value, err := convert(known.value)
	if err == nil {
		c.next[uid] = versioned[V]{version, value}
	}
	return value, err
}

// Swap drops the entries that were not used since the last call.
func (c *VersionCache[V]) Swap() { c.current, c.next = c.next, nil }
