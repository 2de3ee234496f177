// Package target answers three questions about workloads: which pods does a VPA's targetRef mean, which controller
// stands at the top above a pod, and which VPA controls a pod.
//
// Resolver reads the seven well-known kinds (Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController,
// Job, CronJob) from informer caches and every other kind through its scale subresource, whose answers it keeps.
// Selector gives the label selector of a target, Topmost walks up the owners, and Resolve does both as the recommender
// needs it. Key names a workload; two spellings of the same one give equal keys. Claims is the index of what VPAs
// target: CompareClaims puts those of one workload in order. Finder asks both for a pod that is about to be created,
// and a Prefetcher reads ahead what it will need.
//
// Errors are sentences for users: they end up in the condition ConfigUnsupported.
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
	scale     func(ctx context.Context, key Key) (answer, error) // of scales
}

// New returns a resolver that registers its informers with the factory, which the caller then starts, and reads scale
// subresources through scale. The factory's transform must keep what client.Trim keeps.
func New(factory informers.SharedInformerFactory, scale Scale) *Resolver {
	r := &Resolver{workloads: newWorkloads(factory), scales: newScaleCache(scale)}
	r.scale = r.scales.get
	return r
}

// ErrNotRead is the error for what nobody has read yet: of Remembering, and where a namespace has more workloads that
// are new than can be read within mostFirst, or all together within mostFirstOfAll. Run reads these.
var ErrNotRead = errors.New("the API server has not been asked yet, and will be within minutes")

// ErrHangs is ErrNotRead where a request for something of this kind timed out a moment ago.
var ErrHangs = fmt.Errorf("requests for this kind time out, see whether its conversion webhook and its API server answer: %w", ErrNotRead)

// Remembering returns a resolver for callers that must not wait: it shares all answers with r and never asks the API
// server itself. A workload whose scale subresource would have to be read is given to wanted, which must not block, and
// the answer is ErrNotRead. Whoever asks for what nobody has can so have no more than mostUnread workloads of a
// namespace wait to be read. Of answers that are errors Run then leaves mostFailedOfReviews for a namespace, and who
// asks r itself may take its time, as a Prefetcher lets namespaces take turns. It is for reviews, and is made before r
// is used.
func (r *Resolver) Remembering(wanted func(Key)) *Resolver {
	r.scales.mostFailed, r.scales.mostFirst, r.scales.mostFirstOfAll = mostFailedOfReviews, math.MaxInt64, math.MaxInt64
	recall := func(_ context.Context, key Key) (answer, error) {
		a, known, err := r.scales.recall(key, false)
		if !known {
			if r.scales.want(key) {
				wanted(key)
			}
			return answer{}, ErrNotRead
		}
		return a, err
	}
	return &Resolver{workloads: r.workloads, scales: r.scales, scale: recall}
}

// Run keeps the answers about scale subresources fresh until ctx ends. It calls forget every five minutes, so that
// kinds are looked up again; forget may be nil. Without Run every answer stays as it was first given.
func (r *Resolver) Run(ctx context.Context, forget func()) { r.scales.run(ctx, forget) }

// Resolve returns the label selector of a VPA's target if the target is one that
// a VPA may have: it exists, has a selector, and no other controller above it.
func (r *Resolver) Resolve(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	selector, unusable := r.Selector(ctx, namespace, ref)
	if unusable != nil && !errors.Is(unusable, errOwned) {
		return nil, unusable
	}
	key := RefKey(namespace, ref)
	top, found, err := r.Topmost(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot find out whether another controller owns the target %s: %w", key, err)
	case !found:
		return nil, fmt.Errorf("the target %s is no controller with a scale subresource: name one in spec.targetRef", key)
	case top != key:
		return nil, fmt.Errorf("the target %s is owned by %s: name that one in spec.targetRef", key, top)
	}
	return selector, unusable
}

// errOwned is the error of a workload that is cached without selector, because a Deployment owns it.
var errOwned = errors.New("another controller owns it")

// Selector returns the label selector of a VPA's target, whoever owns it.
func (r *Resolver) Selector(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	selected, err := r.Select(ctx, namespace, ref, nil)
	if err != nil {
		return nil, err
	}
	return selected.Selector, nil
}

// Selection is a label selector and what it was made from.
type Selection struct {
	Selector labels.Selector
	from     *metav1.LabelSelector // of a well-known kind
	text     string                // of a scale subresource
}

// Select is Selector for callers that ask again and again: as long as the target
// says the same, it returns the Selection that they had before, which may be nil.
func (r *Resolver) Select(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference, before *Selection) (*Selection, error) {
	if ref == nil || ref.Kind == "" || ref.Name == "" {
		return nil, errors.New("spec.targetRef names no target: give apiVersion, kind and name of the controller of the pods")
	}
	key := RefKey(namespace, ref)
	if err := key.check(); err != nil {
		return nil, fmt.Errorf("spec.targetRef: %w", err)
	}
	if key.static() {
		return nil, fmt.Errorf("spec.targetRef: the target %s owns static pods, whose resources are in files of that node: name a controller of other pods", key)
	}
	selected, err := r.selection(ctx, key, before)
	if err != nil {
		return nil, err
	}
	if selected.Selector.Empty() {
		return nil, fmt.Errorf("the target %s has an empty label selector, which would mean every pod of the namespace: give its pods labels of their own", key)
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
		return nil, fmt.Errorf("cannot read the scale subresource of the target %s, whose kind is none that is known without it: %w", key, err)
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

// longestWalk bounds the walk up the owners; real chains have two or three links, and a cycle is an error, not a hang.
const longestWalk = 20

// Topmost walks from a workload up its controlling owners and returns the last that is well known or has a scale
// subresource. The answer is false when there is none. It is an error when an owner cannot be read, since the answer
// could then be wrong.
func (r *Resolver) Topmost(ctx context.Context, start Key) (top Key, found bool, err error) {
	return topmost(ctx, start, r.owners)
}

// topmost is Topmost with what returns who owns a workload, and whether that counts as the topmost.
func topmost(ctx context.Context, start Key, owners func(context.Context, Key) ([]metav1.OwnerReference, bool, error)) (top Key, found bool, err error) {
	var path [4]Key
	var before Key
	for key, walked := start, 0; ; walked++ {
		if walked < len(path) {
			path[walked] = key
		}
		if walked >= longestWalk {
			return Key{}, false, fmt.Errorf("the owners form a circle: %s, %s, %s, %s", path[0], path[1], path[2], path[3])
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

// owners returns who owns a workload, and false if it cannot be the topmost: its kind
// has no scale subresource, or it is gone.
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

// Top returns the topmost controller at or above the controller of a pod, as the caches know it: that
// controller where none of them counts. False: it is not known yet. Then Run reads what is missing.
func (r *Resolver) Top(controller Key) (top Key, known bool) {
	cached := Resolver{workloads: r.workloads, scales: r.scales, scale: func(_ context.Context, key Key) (answer, error) { return r.scales.cached(key) }}
	top, found, err := cached.Topmost(context.Background(), controller)
	if err != nil {
		return Key{}, false
	}
	if !found {
		return controller, true
	}
	return top, true
}

// Replicas returns how many pods a workload wants, and false if that is not known: it does not exist, says nothing, or
// cannot be read now. For a Job and a CronJob it is never known.
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
