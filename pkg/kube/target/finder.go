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

// TopmostResolver resolves controllers and selectors, such as Resolver and Resolver.CacheOnly.
type TopmostResolver interface {
	// Topmost returns the topmost controller above (or equal to) a workload.
	Topmost(ctx context.Context, start Key) (top Key, found bool, err error)
	// Select returns the label selector of a VPA's target, and before if that is still valid.
	Select(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference, before *Selection) (*Selection, error)
}

// Finder finds the VPA of a pod. It is safe for concurrent use.
type Finder struct {
	resolver TopmostResolver
	ctx      context.Context // of selector reads and logs

	mu         sync.RWMutex
	index      Claims
	namespaces map[string]vpaCounts
	admitted   map[string]map[string]time.Time // admission times of VPAs not yet in the informer, by namespace and name

	waitMu  sync.Mutex
	waiting map[string]int // number of waiting pods by namespace
}

type vpaCounts struct {
	active    int // not idle
	generated int // idle, but generated: the policy may change pods
}

// Serves reports whether a namespace has a VPA that may change its pods. Idle generated VPAs count
// only with includeGenerated.
func (f *Finder) Serves(namespace string, includeGenerated bool) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.namespaces[namespace]
	return n.active > 0 || includeGenerated && n.generated > 0 || len(f.admitted[namespace]) > 0
}

// Bounds of admitted VPAs. An API server may reject a VPA after the webhook has admitted it.
const (
	admittedLifetime = 2 * time.Second
	maxAdmitted      = 20 // per namespace
)

// RecordAdmission records the admission of a VPA at time now. Pods of its namespace wait until the
// informer returns it, see Find.
func (f *Finder) RecordAdmission(vpa *vpav1.VerticalPodAutoscaler, now time.Time) {
	if vpa.Name == "" || vpa.Spec.TargetRef == nil || ClaimOf(vpa).isInactive() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.index.Has(cache.MetaObjectToName(vpa)) {
		return // the API server rejects a second one
	}
	for namespace := range f.admitted {
		f.expire(namespace, now)
	}
	names := f.admitted[vpa.Namespace]
	if names == nil {
		names = map[string]time.Time{}
		f.admitted[vpa.Namespace] = names
	}
	if len(names) < maxAdmitted {
		names[vpa.Name] = now
	}
}

func (f *Finder) expire(namespace string, now time.Time) {
	names := f.admitted[namespace]
	maps.DeleteFunc(names, func(_ string, at time.Time) bool { return now.Sub(at) >= admittedLifetime })
	if len(names) == 0 {
		delete(f.admitted, namespace)
	}
}

func (f *Finder) hasPendingVPA(namespace string) bool {
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

// Namespaces returns the sorted namespaces with VPAs that may change pods, or generated ones.
func (f *Finder) Namespaces() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Sorted(maps.Keys(f.namespaces))
}

// NewFinder returns an empty Finder. The context is for logs and selector reads.
func NewFinder(ctx context.Context, resolver TopmostResolver) *Finder {
	return &Finder{
		resolver:   resolver,
		ctx:        ctx,
		namespaces: map[string]vpaCounts{},
		admitted:   map[string]map[string]time.Time{},
		waiting:    map[string]int{},
	}
}

// Handler updates the Finder. It calls prefetch for targets of active VPAs without informer.
func (f *Finder) Handler(prefetch func(Key)) cache.ResourceEventHandler {
	return vpaHandler(func(vpa *vpav1.VerticalPodAutoscaler) {
		f.Put(vpa)
		if vpa.Spec.TargetRef == nil || ClaimOf(vpa).isInactive() {
			return
		}
		if key := RefKey(vpa.Namespace, vpa.Spec.TargetRef); key.Custom() {
			prefetch(key)
		}
	}, f.Remove)
}

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

// isInactive reports whether a VPA changes no pod under any policy. It still takes precedence over
// a generated VPA.
func (v Claim) isInactive() bool { return v.Idle && !v.Generated }

// Put adds or replaces a VPA. It removes a VPA without target.
func (f *Finder) Put(vpa *vpav1.VerticalPodAutoscaler) {
	name := cache.MetaObjectToName(vpa)
	if vpa.Spec.TargetRef == nil {
		f.Remove(name)
		return
	}
	claim := ClaimOf(vpa)
	claim.Selector = &targetSelector{finder: f, vpa: vpa}
	f.replace(name, &claim)
}

// Remove removes a VPA if the Finder has it.
func (f *Finder) Remove(name cache.ObjectName) { f.replace(name, nil) }

// replace removes a VPA if claim is nil.
func (f *Finder) replace(name cache.ObjectName, claim *Claim) {
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
	if claim != nil {
		f.index.Put(*claim)
		n.count(claim, 1)
	}
	if f.namespaces[name.Namespace] = n; n == (vpaCounts{}) {
		delete(f.namespaces, name.Namespace)
	}
}

func (n *vpaCounts) count(c *Claim, delta int) {
	switch {
	case !c.Idle:
		n.active += delta
	case c.Generated:
		n.generated += delta
	}
}

// targetSelector caches the parsed selector of a VPA's target until the target changes.
type targetSelector struct {
	finder *Finder
	vpa    *vpav1.VerticalPodAutoscaler
	last   atomic.Pointer[Selection]
}

// Matches reports whether the target selects a pod with the given labels.
func (s *targetSelector) Matches(podLabels labels.Labels) bool {
	ctx := s.finder.ctx
	selection, err := s.finder.resolver.Select(ctx, s.vpa.Namespace, s.vpa.Spec.TargetRef, s.last.Load())
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Skipping VPA: its target cannot be read", "vpa", klog.KObj(s.vpa), "reason", err)
		return false
	}
	s.last.Store(selection)
	return selection.Selector.Matches(podLabels)
}

// Find returns the VPA that controls a pod about to be created. Its target is the topmost
// controller above the pod, its selector matches the pod's labels, and it is the first by
// CompareClaims. The result is nil if there is none, if that VPA changes no pod under any policy, or
// if the pod exceeds the bounds of client.TooLargeReason. The policy of a generated VPA decides later.
// Find fails if an owner cannot be read.
//
// With a resolver of CacheOnly it makes no API call, and waits at most 200 ms in total for owners
// and for VPAs that were just admitted. It does not wait while maxWaitingPods pods of the namespace
// wait.
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
	chosen, found := f.index.Strongest(top)
	f.mu.RUnlock()
	if !found || chosen.isInactive() || client.TooLargeReason(pod) != "" || !chosen.Selector.Matches(labels.Set(pod.Labels)) {
		return nil, nil
	}
	return chosen.VPA, nil
}

// pauses are the waits before another lookup. A pod can arrive some milliseconds before the watch
// event of its new owner or VPA, or before a Prefetcher has read the owner.
var pauses = [...]time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 120 * time.Millisecond}

// maxWaitingPods is the maximum number of waiting pods in a namespace. Each occupies one of the
// server's concurrent requests, and any user can give a pod a nonexistent owner.
const maxWaitingPods = 20

func (f *Finder) topmost(ctx context.Context, owner Key) (top Key, found bool, err error) {
	resolved := func() bool {
		top, found, err = f.resolver.Topmost(ctx, owner)
		return isConclusive(err) && !f.hasPendingVPA(owner.Namespace)
	}
	if resolved() {
		return top, found, err
	}
	if !f.startWait(owner.Namespace) {
		if isConclusive(err) {
			return top, found, err
		}
		return Key{}, false, fmt.Errorf("%d other pods of namespace %s already wait for their owners: %w", maxWaitingPods, owner.Namespace, err)
	}
	defer f.endWait(owner.Namespace)
	for _, pause := range pauses {
		select {
		case <-ctx.Done():
			return top, found, err
		case <-time.After(pause):
		}
		if resolved() {
			break
		}
	}
	return top, found, err
}

// startWait returns false if too many pods of a namespace wait. Otherwise endWait must follow.
func (f *Finder) startWait(namespace string) bool {
	f.waitMu.Lock()
	defer f.waitMu.Unlock()
	if f.waiting[namespace] >= maxWaitingPods {
		return false
	}
	f.waiting[namespace]++
	return true
}

func (f *Finder) endWait(namespace string) {
	f.waitMu.Lock()
	defer f.waitMu.Unlock()
	if f.waiting[namespace]--; f.waiting[namespace] == 0 {
		delete(f.waiting, namespace)
	}
}

// isConclusive reports whether a lookup succeeded or the API server returned an error about an
// owner. Such an error is cached for longer than a pod can wait.
func isConclusive(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status) || meta.IsNoMatchError(err)
}
