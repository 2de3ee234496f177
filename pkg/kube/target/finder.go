package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
)

// TopmostResolver reads controllers; target.Resolver does it from informer caches, and
// one that is Remembering never from anywhere else.
type TopmostResolver interface {
	// Topmost returns the topmost controller above (or equal to) a workload.
	Topmost(ctx context.Context, start Key) (top Key, found bool, err error)
	// Select returns the label selector of a VPA's target: what it returned before, if that is still right.
	Select(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference, before *Selection) (*Selection, error)
}

// Finder finds the VPA of a pod. It is safe for concurrent use.
type Finder struct {
	resolver TopmostResolver
	ctx      context.Context // of selectors that are read, and of logs

	mu         sync.RWMutex
	index      Claims
	namespaces map[string]numbers
	admitted   map[string]map[string]time.Time // when VPAs were admitted that the informer has not shown, by namespace and name

	pausing sync.Mutex
	waiting map[string]int // number of pods of each that wait for their owners
}

// numbers are how many VPAs of a namespace may change pods.
type numbers struct {
	acting int // not idle
	made   int // idle, but made for a policy, which may act
}

// Serves reports whether a namespace has a VPA that may change its pods. With made those
// count that were made for a policy: it lets them act.
func (f *Finder) Serves(namespace string, made bool) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.namespaces[namespace]
	return n.acting > 0 || made && n.made > 0 || len(f.admitted[namespace]) > 0
}

// Bounds of the VPAs that pods wait for. An API server may refuse a VPA after the webhook has admitted it.
const (
	admittedFor  = 2 * time.Second
	mostAdmitted = 20 // in a namespace
)

// Admitted notes that a VPA may be created at now: pods of its namespace that arrive before the
// informer shows it wait for it, as Find describes.
func (f *Finder) Admitted(vpa *vpav1.VerticalPodAutoscaler, now time.Time) {
	if vpa.Name == "" || vpa.Spec.TargetRef == nil || ClaimOf(vpa).bystands() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.index.Has(cache.MetaObjectToName(vpa)) {
		return // the API server will refuse a second one
	}
	for namespace := range f.admitted {
		f.expire(namespace, now)
	}
	names := f.admitted[vpa.Namespace]
	if names == nil {
		names = map[string]time.Time{}
		f.admitted[vpa.Namespace] = names
	}
	if len(names) < mostAdmitted {
		names[vpa.Name] = now
	}
}

// expire drops the VPAs of a namespace that did not come.
func (f *Finder) expire(namespace string, now time.Time) {
	names := f.admitted[namespace]
	maps.DeleteFunc(names, func(_ string, at time.Time) bool { return now.Sub(at) >= admittedFor })
	if len(names) == 0 {
		delete(f.admitted, namespace)
	}
}

// expects reports whether a VPA of a namespace was admitted, and the informer has not shown it.
func (f *Finder) expects(namespace string) bool {
	f.mu.RLock()
	expected := len(f.admitted[namespace]) > 0
	f.mu.RUnlock()
	if !expected {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(namespace, time.Now())
	return len(f.admitted[namespace]) > 0
}

// Namespaces returns the namespaces that Serves knows, with those of made VPAs, sorted.
func (f *Finder) Namespaces() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Sorted(maps.Keys(f.namespaces))
}

// NewFinder returns a Finder without VPAs. The context ends its logs.
func NewFinder(ctx context.Context, resolver TopmostResolver) *Finder {
	return &Finder{
		resolver:   resolver,
		ctx:        ctx,
		namespaces: map[string]numbers{},
		admitted:   map[string]map[string]time.Time{},
		waiting:    map[string]int{},
	}
}

// Handler feeds the Finder from an informer of VPAs, and gives the targets of those that
// may change pods to wanted if no informer holds them.
func (f *Finder) Handler(wanted func(Key)) cache.ResourceEventHandler {
	return vpaHandler(func(vpa *vpav1.VerticalPodAutoscaler) {
		f.Put(vpa)
		if vpa.Spec.TargetRef == nil || ClaimOf(vpa).bystands() {
			return
		}
		if key := RefKey(vpa.Namespace, vpa.Spec.TargetRef); key.Custom() {
			wanted(key)
		}
	}, f.Remove)
}

// vpaHandler gives VPAs that an informer shows to put, and the names of those that are gone to remove.
func vpaHandler(put func(*vpav1.VerticalPodAutoscaler), remove func(cache.ObjectName)) cache.ResourceEventHandler {
	see := func(object any) {
		if vpa, ok := object.(*vpav1.VerticalPodAutoscaler); ok {
			put(vpa)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, object any) { see(object) },
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
				remove(name)
			}
		},
	}
}

// bystands reports whether a VPA changes no pod, whatever any policy says. It still keeps one
// that was made for its target from doing so.
func (v Claim) bystands() bool { return v.Idle && !v.Made }

// Put adds a VPA or replaces it. One without a target is left out.
func (f *Finder) Put(vpa *vpav1.VerticalPodAutoscaler) {
	name := cache.MetaObjectToName(vpa)
	if vpa.Spec.TargetRef == nil {
		f.Remove(name)
		return
	}
	claim := ClaimOf(vpa)
	claim.Selector = &targetSelector{finder: f, vpa: vpa}
	f.change(name, &claim)
}

// Remove forgets a VPA; an unknown one is no error.
func (f *Finder) Remove(name cache.ObjectName) { f.change(name, nil) }

// change replaces a VPA in the index; nil: by none.
func (f *Finder) change(name cache.ObjectName, by *Claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if names := f.admitted[name.Namespace]; names != nil {
		if delete(names, name.Name); len(names) == 0 {
			delete(f.admitted, name.Namespace)
		}
	}
	n := f.namespaces[name.Namespace]
	if before, known := f.index.Remove(name.Namespace, name.Name); known {
		n.count(&before, -1)
	}
	if by != nil {
		f.index.Put(*by)
		n.count(by, 1)
	}
	if f.namespaces[name.Namespace] = n; n == (numbers{}) {
		delete(f.namespaces, name.Namespace)
	}
}

func (n *numbers) count(c *Claim, by int) {
	switch {
	case !c.Idle:
		n.acting += by
	case c.Made:
		n.made += by
	}
}

// targetSelector is the selector of the target of a VPA. It keeps the parsed selector until the target changes.
type targetSelector struct {
	finder *Finder
	vpa    *vpav1.VerticalPodAutoscaler
	last   atomic.Pointer[Selection]
}

// Matches reports whether the target selects a pod with these labels.
func (s *targetSelector) Matches(of labels.Labels) bool {
	ctx := s.finder.ctx
	selection, err := s.finder.resolver.Select(ctx, s.vpa.Namespace, s.vpa.Spec.TargetRef, s.last.Load())
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Skipping VPA: its target cannot be read", "vpa", klog.KObj(s.vpa), "reason", err)
		return false
	}
	s.last.Store(selection)
	return selection.Selector.Matches(of)
}

// Find returns the VPA that controls a pod about to be created in a namespace: of those whose
// target is the topmost controller above the pod and whose selector matches its labels, the
// first by CompareClaims. It is nil if there is none, or if that one changes no pod, and for a pod that is
// too large for the caches of the other programs. Of a made VPA the policy decides. It fails when an owner cannot be read. With a resolver that is Remembering it
// makes no API call, and waits at most 200 ms in total for news of owners and of VPAs that were just
// admitted. It does not wait while mostWaitingPods of the namespace do.
func (f *Finder) Find(ctx context.Context, namespace string, pod *corev1.Pod) (*vpav1.VerticalPodAutoscaler, error) {
	owner, ok := Controller(namespace, pod.OwnerReferences)
	if !ok || !f.Serves(namespace, true) {
		return nil, nil
	}
	top, found, err := f.topmost(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("find the topmost controller above %s: %w", owner, err)
	}
	if !found {
		return nil, nil
	}
	f.mu.RLock()
	chosen, found := f.index.Targeting(top)
	f.mu.RUnlock()
	if !found || chosen.bystands() || client.Unselectable(pod) != "" || !chosen.Selector.Matches(labels.Set(pod.Labels)) {
		return nil, nil
	}
	return chosen.VPA, nil
}

// pauses are the waits before a pod is looked up again: it can arrive some milliseconds before the
// news that its new owner or its new VPA exists, or before a Prefetcher has read that owner.
var pauses = [...]time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 120 * time.Millisecond}

// mostWaitingPods is how many pods of a namespace wait for their owners at the same time. Each holds one of the answers
// that the server gives at once, and anybody can write an owner into a pod that never exists.
const mostWaitingPods = 20

func (f *Finder) topmost(ctx context.Context, owner Key) (top Key, found bool, err error) {
	settled := func() bool {
		top, found, err = f.resolver.Topmost(ctx, owner)
		return answered(err) && !f.expects(owner.Namespace)
	}
	if settled() {
		return top, found, err
	}
	if !f.wait(owner.Namespace) {
		if answered(err) {
			return top, found, err
		}
		return Key{}, false, fmt.Errorf("%d other pods of namespace %s wait for their owners already: %w", mostWaitingPods, owner.Namespace, err)
	}
	defer f.waited(owner.Namespace)
	for _, pause := range pauses {
		select {
		case <-ctx.Done():
			return top, found, err
		case <-time.After(pause):
		}
		if settled() {
			break
		}
	}
	return top, found, err
}

// wait reports whether a pod of a namespace may wait; then waited must follow.
func (f *Finder) wait(namespace string) bool {
	f.pausing.Lock()
	defer f.pausing.Unlock()
	if f.waiting[namespace] >= mostWaitingPods {
		return false
	}
	f.waiting[namespace]++
	return true
}

func (f *Finder) waited(namespace string) {
	f.pausing.Lock()
	defer f.pausing.Unlock()
	if f.waiting[namespace]--; f.waiting[namespace] == 0 {
		delete(f.waiting, namespace)
	}
}

// answered reports whether there is an answer: none is an error, or one is what the API
// server said about an owner. It is remembered for longer than a pod can wait.
func answered(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status) || meta.IsNoMatchError(err)
}
