package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	autoscalingk8sio "loadline.dev/loadline/pkg/generated/informers/externalversions/autoscaling"
	vpainterfaces "loadline.dev/loadline/pkg/generated/informers/externalversions/internalinterfaces"
	"loadline.dev/loadline/pkg/generated/informers/externalversions/loadline"
)

// Resync intervals of informers.
const (
	ControllerResync = 10 * time.Minute
	ObjectResync     = time.Hour // pods, VPAs and checkpoints
)

// Field selectors of the pod informers.
const (
	NotPending = "status.phase!=Pending"                                        // recommender
	Running    = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed" // updater
)

// Factory returns a factory of informers for core objects that a Trimmer trims. An empty namespace
// means all namespaces. The field selector applies to every informer.
//
// Servers stream the first list since Kubernetes 1.34, and each object is trimmed on arrival. A
// list of an older server is completely in memory before it is trimmed.
func Factory(kube kubernetes.Interface, namespace string, resync time.Duration, fieldSelector string, options ...Option) informers.SharedInformerFactory {
	f := &factory{kube: kube, fieldSelector: fieldSelector, builder: builder{namespace, forbiddenGracePeriod, apply(options)}}
	f.SharedInformerFactory = informers.NewSharedInformerFactoryWithOptions(kube, resync,
		informers.WithNamespace(namespace), informers.WithTransform(new(Trimmer).Trim), informers.WithTweakListOptions(f.tweak))
	return f
}

type factory struct {
	informers.SharedInformerFactory
	builder

	kube          kubernetes.Interface
	fieldSelector string
}

func (f *factory) tweak(o *metav1.ListOptions) { o.FieldSelector = f.fieldSelector }

// Core returns the informers of the core group.
func (f *factory) Core() core.Interface { return coreGroup{core.New(f, f.namespace, f.tweak)} }

// Apps returns the informers of the group apps.
func (f *factory) Apps() apps.Interface { return apps.New(f, f.namespace, f.tweak) }

// Autoscaling returns the informers of the group autoscaling.
func (f *factory) Autoscaling() autoscaling.Interface {
	return autoscaling.New(f, f.namespace, f.tweak)
}

// Batch returns the informers of the group batch.
func (f *factory) Batch() batch.Interface { return batch.New(f, f.namespace, f.tweak) }

// Policy returns the informers of the group policy.
func (f *factory) Policy() policy.Interface { return policy.New(f, f.namespace, f.tweak) }

// InformerFor returns the informer of a kind. It uses create if requests does not support it.
func (f *factory) InformerFor(object runtime.Object, create internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if requests, optional := f.requests(object); requests != nil {
		create = func(kube kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			return f.build(kube, object, resync, requests, optional)
		}
	}
	informer := f.SharedInformerFactory.InformerFor(object, create)
	f.sizes.Add(resourceOf(object), informer.GetStore())
	return informer
}

// requests returns nil for an unsupported kind, and whether the kind is optional.
func (f *factory) requests(object runtime.Object) (w *cache.ListWatch, optional bool) {
	switch object.(type) {
	case *corev1.Pod:
		return requests(f.kube.CoreV1().Pods(f.namespace), f.tweak), false
	case *corev1.LimitRange:
		return requests(f.kube.CoreV1().LimitRanges(f.namespace), f.tweak), false
	case *corev1.ReplicationController:
		return requests(f.kube.CoreV1().ReplicationControllers(f.namespace), f.tweak), false
	case *appsv1.ReplicaSet:
		return requests(f.kube.AppsV1().ReplicaSets(f.namespace), f.tweak), false
	case *appsv1.Deployment:
		return requests(f.kube.AppsV1().Deployments(f.namespace), f.tweak), false
	case *appsv1.StatefulSet:
		return requests(f.kube.AppsV1().StatefulSets(f.namespace), f.tweak), false
	case *appsv1.DaemonSet:
		return requests(f.kube.AppsV1().DaemonSets(f.namespace), f.tweak), false
	case *batchv1.Job:
		return requests(f.kube.BatchV1().Jobs(f.namespace), f.tweak), false
	case *batchv1.CronJob:
		return requests(f.kube.BatchV1().CronJobs(f.namespace), f.tweak), false
	case *corev1.Node:
		return requests(f.kube.CoreV1().Nodes(), f.tweak), true
	case *corev1.Namespace:
		return requests(f.kube.CoreV1().Namespaces(), f.tweak), true
	case *corev1.ResourceQuota:
		return requests(f.kube.CoreV1().ResourceQuotas(f.namespace), f.tweak), true
	case *autoscalingv2.HorizontalPodAutoscaler:
		return requests(f.kube.AutoscalingV2().HorizontalPodAutoscalers(f.namespace), f.tweak), true
	case *policyv1.PodDisruptionBudget:
		return requests(f.kube.PolicyV1().PodDisruptionBudgets(f.namespace), f.tweak), true
	}
	return nil, false
}

// VPAFactory is Factory for VPAs, checkpoints, SizingRecords and cluster-scoped SizingPolicies.
func VPAFactory(vpa versioned.Interface, namespace string, options ...Option) externalversions.SharedInformerFactory {
	all := externalversions.NewSharedInformerFactoryWithOptions(vpa, ObjectResync,
		externalversions.WithNamespace(namespace), externalversions.WithTransform(new(Trimmer).Trim))
	return &vpaFactory{all, builder{namespace, forbiddenGracePeriod, apply(options)}, vpa}
}

type vpaFactory struct {
	externalversions.SharedInformerFactory
	builder

	vpa versioned.Interface
}

// Autoscaling returns the informers of the group autoscaling.k8s.io.
func (f *vpaFactory) Autoscaling() autoscalingk8sio.Interface {
	return autoscalingk8sio.New(f, f.namespace, nil)
}

// Loadline returns the informers of the group loadline.dev.
func (f *vpaFactory) Loadline() loadline.Interface { return loadline.New(f, f.namespace, nil) }

// InformerFor returns the informer of a kind. It uses create if requests does not support it.
func (f *vpaFactory) InformerFor(object runtime.Object, create vpainterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if requests, optional := f.requests(object); requests != nil {
		create = func(vpa versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
			return f.build(vpa, object, resync, requests, optional)
		}
	}
	informer := f.SharedInformerFactory.InformerFor(object, create)
	f.sizes.Add(resourceOf(object), informer.GetStore())
	return informer
}

func (f *vpaFactory) requests(object runtime.Object) (w *cache.ListWatch, optional bool) {
	all := func(*metav1.ListOptions) {}
	switch object.(type) {
	case *vpav1.VerticalPodAutoscaler:
		return requests(f.vpa.AutoscalingV1().VerticalPodAutoscalers(f.namespace), all), false
	case *loadlinev1alpha1.SizingPolicy:
		return requests(f.vpa.LoadlineV1alpha1().SizingPolicies(), all), true
	case *loadlinev1alpha1.SizingRecord:
		return requests(f.vpa.LoadlineV1alpha1().SizingRecords(f.namespace), all), true
	}
	return nil, false
}

// builder builds informers with options, optional kinds as an optionalInformer.
type builder struct {
	namespace   string
	gracePeriod time.Duration // see forbiddenGracePeriod
	options
}

func (b *builder) build(client any, object runtime.Object, resync time.Duration, requests *cache.ListWatch, optional bool) cache.SharedIndexInformer {
	g := &optionalInformer{gracePeriod: b.gracePeriod}
	if optional {
		requests = g.wrap(requests)
	}
	requests = b.freshness.track(object, optional, requests)
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if _, many := object.(*appsv1.ReplicaSet); many { // no program lists them by namespace
		indexers = cache.Indexers{}
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(requests, client), object, resync, indexers)
	if !optional {
		return informer
	}
	g.SharedIndexInformer = informer
	return g
}

type typedClient[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func requests[L runtime.Object](client typedClient[L], tweak func(*metav1.ListOptions)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			tweak(&o)
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			tweak(&o)
			return client.Watch(ctx, o)
		},
	}
}

const syncNotice = 30 * time.Second

// Sync waits for caches and logs the missing ones every half minute. It fails only when ctx ends.
func Sync(ctx context.Context, caches map[string]cache.InformerSynced) error {
	var waiting []string
	lastNotice := time.Now()
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		waiting = slices.DeleteFunc(slices.Sorted(maps.Keys(caches)), func(name string) bool { return caches[name]() })
		if len(waiting) > 0 && time.Since(lastNotice) >= syncNotice {
			lastNotice = time.Now()
			klog.FromContext(ctx).Info("Still waiting for the API server to list objects, check custom resource definitions and permissions", "objects", waiting)
		}
		return len(waiting) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the caches of %s: %w", strings.Join(waiting, ", "), err)
	}
	return nil
}

const (
	// RetryForbidden is the pause before reading a forbidden resource again. It doubles with each
	// refusal, up to maxRetryForbidden.
	RetryForbidden    = 10 * time.Second
	maxRetryForbidden = 5 * time.Minute
	// forbiddenGracePeriod is the time for which cached objects stay valid after a refusal. An API
	// server refuses requests for a moment while it starts or a role is being replaced.
	forbiddenGracePeriod = 5 * time.Minute
)

// Optional lets a program run without the objects of an informer while reading them is forbidden,
// as with the permissions of the reference VPA, or while their definition is not installed.
// HasSynced is then false, some minutes later if it was true before.
//
// The sentence describes the consequence, and is logged once instead of an error for each attempt.
// The informer retries after the given pause or a multiple of it, where 0 means RetryForbidden.
// Call it before the informer starts, only for optional kinds of Factory and VPAFactory.
func Optional(informer cache.SharedInformer, retry time.Duration, sentence string) error {
	return optional(informer, retry, sentence, nil, func() {})
}

// OptionalSync is Optional for objects needed at start. The returned function reports whether they
// were listed or refused. Refusals while a starting API server loads its roles do not count.
func OptionalSync(informer cache.SharedInformer, sentence string) (cache.InformerSynced, error) {
	var denied atomic.Bool
	err := optional(informer, 0, sentence, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, func() { denied.Store(true) })
	return func() bool { return informer.HasSynced() || denied.Load() }, err
}

// optional retries after the early pauses before it accepts a refusal and calls note.
func optional(informer cache.SharedInformer, retry time.Duration, sentence string, early []time.Duration, note func()) error {
	return informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !refused(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		attempts, _ := ctx.Value(attemptsKey{}).(int32)
		var pause time.Duration
		if before := int32(len(early)); attempts <= before && apierrors.IsForbidden(err) {
			pause = early[max(attempts, 1)-1]
		} else {
			note()
			if attempts <= before+1 {
				klog.FromContext(ctx).Info(sentence, "reason", err)
			}
			pause = cmp.Or(retry, RetryForbidden)
			for ; attempts > before+1 && pause < maxRetryForbidden; attempts-- {
				pause *= 2
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(pause, maxRetryForbidden)):
		}
	})
}

func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }

// optionalInformer is not synced while reading is forbidden: its objects may be outdated.
type optionalInformer struct {
	cache.SharedIndexInformer

	gracePeriod    time.Duration // see forbiddenGracePeriod
	forbiddenSince atomic.Int64  // start, in ns since 1970; 0: not forbidden
	attempts       atomic.Int32  // refused since the last list
}

// attemptsKey is the context key of the number of refusals since the last list. It is passed by
// context, because a program may hold a wrapper of the informer that counts.
type attemptsKey struct{}

// SetWatchErrorHandlerWithContext passes the number of refusals to the handler.
func (g *optionalInformer) SetWatchErrorHandlerWithContext(handle cache.WatchErrorHandlerWithContext) error {
	return g.SharedIndexInformer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if refused(err) {
			ctx = context.WithValue(ctx, attemptsKey{}, g.attempts.Add(1))
		}
		handle(ctx, r, err)
	})
}

// HasSynced reports whether the cached objects are valid.
func (g *optionalInformer) HasSynced() bool {
	since := g.forbiddenSince.Load()
	return g.SharedIndexInformer.HasSynced() && (since == 0 || time.Since(time.Unix(0, since)) < g.gracePeriod)
}

func (g *optionalInformer) recordError(err error) {
	if refused(err) {
		g.forbiddenSince.CompareAndSwap(0, time.Now().UnixNano())
	}
}

func (g *optionalInformer) recordList() {
	g.attempts.Store(0)
	g.forbiddenSince.Store(0)
}

func (g *optionalInformer) wrap(requests *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all, err := requests.ListWithContextFunc(ctx, o)
			g.recordError(err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := requests.WatchFuncWithContext(ctx, o)
			g.recordError(err)
			switch {
			case err != nil:
				return nil, err
			case o.SendInitialEvents == nil || !*o.SendInitialEvents:
				g.recordList() // an informer watches after a list
				return w, nil
			case g.forbiddenSince.Load() == 0:
				return w, nil
			}
			return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
				if event.Type == watch.Bookmark {
					if mark, ok := event.Object.(metav1.Object); ok && mark.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
						g.recordList() // the end of a streamed list
					}
				}
				return event, true
			}), nil
		},
	}
}
