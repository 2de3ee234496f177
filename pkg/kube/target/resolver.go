// Package target maps between workloads, pods and VPAs: it finds the pods of a VPA's targetRef, the
// topmost controller above a pod, and the VPA that controls a pod.
//
// Resolver reads the seven well-known kinds (Deployment, ReplicaSet, StatefulSet, DaemonSet,
// ReplicationController, Job, CronJob) from informer caches and every other kind through its scale
// subresource, which it caches. Key identifies a workload independently of the spelling of a
// reference. Claims indexes VPAs by target. Finder finds the VPA of a pod that is about to be
// created, and a Prefetcher reads the required workloads ahead.
//
// Errors are sentences for users, because they appear in the condition ConfigUnsupported.
package target

import (
	"context"
	"errors"
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"

	"loadline.dev/loadline/pkg/kube/client"
)

// Resolver finds the selector and the topmost owner of workloads. It is safe for concurrent use.
type Resolver struct {
	workloads *workloads
	scales    *scaleCache
	scale     func(ctx context.Context, key Key) (scaleInfo, error) // scale subresources from scales
}

// New registers informers with the factory, which the caller starts, and reads scale subresources
// through scale. The factory's transform must keep the fields of client.Trim.
func New(factory informers.SharedInformerFactory, scale Scale) *Resolver {
	r := &Resolver{workloads: newWorkloads(factory), scales: newScaleCache(scale)}
	r.scale = r.scales.get
	return r
}

// ErrNotRead is returned for a workload that has not been read yet: by resolvers of CacheOnly, and
// after new workloads have used up maxFirstWait or maxTotalFirstWait. Run reads such workloads
// later.
var ErrNotRead = errors.New("not read from the API server yet, will be read within minutes")

// ErrHangs is ErrNotRead after a request for the same kind timed out.
var ErrHangs = fmt.Errorf("requests for this kind time out, check its conversion webhook and its API server: %w", ErrNotRead)

// CacheOnly returns a resolver for admission reviews, which must not block. It shares the cache of
// r and never sends a request. For an uncached scale subresource it returns ErrNotRead and calls
// prefetch, which must not block either, for at most maxUnread unread workloads of a namespace.
//
// It changes r too: first reads may wait without limit, because a Prefetcher already shares reads
// between namespaces, and a namespace has at most maxReviewErrors cached errors. Call it before r
// is used.
func (r *Resolver) CacheOnly(prefetch func(Key)) *Resolver {
	r.scales.maxErrors, r.scales.maxFirstWait, r.scales.maxTotalFirstWait = maxReviewErrors, math.MaxInt64, math.MaxInt64
	recall := func(_ context.Context, key Key) (scaleInfo, error) {
		a, known, err := r.scales.lookup(key, false)
		if !known {
			if r.scales.addUnread(key) {
				prefetch(key)
			}
			return scaleInfo{}, ErrNotRead
		}
		return a, err
	}
	return &Resolver{workloads: r.workloads, scales: r.scales, scale: recall}
}

// Run refreshes cached scale subresources until ctx ends. It calls forget every five minutes, so
// that kinds are discovered again. forget may be nil. Without Run nothing is refreshed.
func (r *Resolver) Run(ctx context.Context, forget func()) { r.scales.run(ctx, forget) }

// Resolve returns the label selector of a VPA's target, or an error unless the target exists, has a
// selector and has no controller above it.
func (r *Resolver) Resolve(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	selector, unusable := r.Selector(ctx, namespace, ref)
	if unusable != nil && !errors.Is(unusable, errOwned) {
		return nil, unusable
	}
	key := RefKey(namespace, ref)
	top, found, err := r.Topmost(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot resolve the owners of the target %s: %w", key, err)
	case !found:
		return nil, fmt.Errorf("the target %s is not a controller with a scale subresource: set spec.targetRef to one", key)
	case top != key:
		return nil, fmt.Errorf("the target %s is owned by %s: set spec.targetRef to the owner", key, top)
	}
	return selector, unusable
}

// errOwned is the error of a workload without selector in the cache, because a Deployment owns it.
var errOwned = errors.New("another controller owns it")

// Selector returns the label selector of a VPA's target without checking its owners.
func (r *Resolver) Selector(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	selected, err := r.Select(ctx, namespace, ref, nil)
	if err != nil {
		return nil, err
	}
	return selected.Selector, nil
}

// Selection is a parsed label selector and its source.
type Selection struct {
	Selector labels.Selector
	from     *metav1.LabelSelector // for well-known kinds
	text     string                // from a scale subresource
}

// Select is Selector for repeated calls: it returns before, maybe nil, if nothing changed.
func (r *Resolver) Select(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference, before *Selection) (*Selection, error) {
	if ref == nil || ref.Kind == "" || ref.Name == "" {
		return nil, errors.New("spec.targetRef is incomplete: set apiVersion, kind and name of the controller of the pods")
	}
	key := RefKey(namespace, ref)
	if err := key.check(); err != nil {
		return nil, fmt.Errorf("spec.targetRef: %w", err)
	}
	if key.static() {
		return nil, fmt.Errorf("spec.targetRef: the target %s owns static pods, which are configured in files on the node: set another controller", key)
	}
	selected, err := r.selection(ctx, key, before)
	if err != nil {
		return nil, err
	}
	if selected.Selector.Empty() {
		return nil, fmt.Errorf("the target %s has an empty label selector, which selects every pod of the namespace: set a selector for its own pods", key)
	}
	return selected, nil
}

func (r *Resolver) selection(ctx context.Context, key Key, before *Selection) (*Selection, error) {
	if key.wellKnown() {
		w, err := r.workloads.lookup(key)
		if err != nil {
			return nil, err
		}
		if w.selector == nil {
			if _, owned := Controller(key.Namespace, w.owners); owned {
				return nil, fmt.Errorf("the target %s cannot be used: %w", key, errOwned)
			}
			return nil, fmt.Errorf("the target %s has no label selector: give it one that matches its pods", key)
		}
		if before != nil && before.from == w.selector {
			return before, nil
		}
		selector, err := client.Selector(w.selector)
		if err != nil {
			return nil, fmt.Errorf("the label selector of the target %s cannot be used: %w", key, err)
		}
		return &Selection{Selector: selector, from: w.selector}, nil
	}
	scale, err := r.scale(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the scale subresource of the target %s, which its kind requires: %w", key, err)
	}
	if scale.selector == "" {
		return nil, fmt.Errorf("the scale subresource of the target %s has an empty status.selector: its custom resource definition needs labelSelectorPath", key)
	}
	if before != nil && before.text == scale.selector {
		return before, nil
	}
	selector, err := client.ParseSelector(scale.selector)
	if err != nil {
		return nil, fmt.Errorf("status.selector in the scale subresource of the target %s cannot be used: %w", key, err)
	}
	return &Selection{Selector: selector, text: scale.selector}, nil
}

// maxOwnerDepth turns an owner cycle into an error. Real chains have two or three links.
const maxOwnerDepth = 20

// Topmost returns the last of a workload and its controlling owners that is well known or has a
// scale subresource, or false. An unreadable owner is an error, because the result could be wrong.
func (r *Resolver) Topmost(ctx context.Context, start Key) (top Key, found bool, err error) {
	return topmost(ctx, start, r.owners)
}

// topmost calls owners for the owners of a workload, and whether it can be the topmost.
func topmost(ctx context.Context, start Key, owners func(context.Context, Key) ([]metav1.OwnerReference, bool, error)) (top Key, found bool, err error) {
	var path [4]Key
	var before Key
	for key, walked := start, 0; ; walked++ {
		if walked < len(path) {
			path[walked] = key
		}
		if walked >= maxOwnerDepth {
			return Key{}, false, fmt.Errorf("the owners form a cycle: %s, %s, %s, %s", path[0], path[1], path[2], path[3])
		}
		if err := key.check(); err != nil {
			of := "a pod"
			if walked > 0 {
				of = before.String()
			}
			return Key{}, false, fmt.Errorf("metadata.ownerReferences of %s in namespace %s: %w", of, start.Namespace, err)
		}
		before = key
		above, counts, err := owners(ctx, key)
		if err != nil {
			return Key{}, false, err
		}
		if counts {
			top, found = key, true
		}
		parent, owned := Controller(key.Namespace, above)
		if !owned {
			return top, found, nil
		}
		key = parent
	}
}

// owners returns false for a missing workload or a kind without scale subresource.
func (r *Resolver) owners(ctx context.Context, key Key) (owners []metav1.OwnerReference, counts bool, err error) {
	if key.static() {
		return nil, false, nil
	}
	if key.wellKnown() {
		w, err := r.workloads.lookup(key)
		return w.owners, err == nil, err
	}
	scale, err := r.scale(ctx, key)
	switch {
	case apierrors.IsNotFound(err) || errors.Is(err, client.ErrNoScale):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read the scale subresource of %s: %w", key, err)
	}
	return scale.owners, true, nil
}

// Top returns the topmost controller from the caches, or the pod's controller if none can be it. It
// returns false if the result is not cached yet, and Run then reads it.
func (r *Resolver) Top(controller Key) (top Key, known bool) {
	cached := Resolver{workloads: r.workloads, scales: r.scales, scale: func(_ context.Context, key Key) (scaleInfo, error) { return r.scales.cached(key) }}
	top, found, err := cached.Topmost(context.Background(), controller)
	if err != nil {
		return Key{}, false
	}
	if !found {
		return controller, true
	}
	return top, true
}

// Replicas returns the desired number of pods, and false if the workload does not exist, has no
// such field, or cannot be read. It is always false for Jobs and CronJobs.
func (r *Resolver) Replicas(ctx context.Context, key Key) (int32, bool) {
	if key.wellKnown() {
		if w := r.cached(key); w.replicas != nil {
			return *w.replicas, true
		}
		return 0, false
	}
	scale, err := r.scale(ctx, key)
	if err != nil {
		return 0, false
	}
	return scale.replicas, true
}
