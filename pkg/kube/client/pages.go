package client

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
)

const (
	// pageSize is how many objects are asked for at once.
	pageSize = 500
	// smallPage is how many are of a kind whose lists are never streamed: who may create such objects in one
	// namespace can make each of them as large as the API server takes it.
	smallPage = 50
)

// factory is a factory whose informers of pods and ReplicaSets, of which a cluster
// has the most, never hold a whole list of untrimmed objects. Servers stream the
// first list since Kubernetes 1.34, and informers trim each object as it comes;
// from older ones the list is read in pages, each trimmed before the next. Its informers
// of what a program can do without notice when they may not read it; see Optional. Those of
// kinds of which there are few ask for no bookmarks; see wholeLists.
type factory struct {
	informers.SharedInformerFactory

	namespace string
	tweak     func(*metav1.ListOptions)
	trim      cache.TransformFunc
	trust     time.Duration // see trusted
	options
}

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

// InformerFor returns the informer of a kind, which the function makes if there is
// none and the kind is not one of those for which this factory has its own.
func (f *factory) InformerFor(object runtime.Object, create internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	switch object.(type) {
	case *corev1.Pod:
		create = f.paged(object, func(kube kubernetes.Interface) *cache.ListWatch {
			pods := kube.CoreV1().Pods(f.namespace)
			return requests(pods.List, pods.Watch)
		})
	case *appsv1.ReplicaSet:
		create = f.paged(object, func(kube kubernetes.Interface) *cache.ListWatch {
			sets := kube.AppsV1().ReplicaSets(f.namespace)
			return requests(sets.List, sets.Watch)
		})
	case *appsv1.Deployment:
		create = f.plain(object, func(kube kubernetes.Interface) *cache.ListWatch {
			deployments := kube.AppsV1().Deployments(f.namespace)
			return requests(deployments.List, deployments.Watch)
		})
	case *appsv1.StatefulSet:
		create = f.plain(object, func(kube kubernetes.Interface) *cache.ListWatch {
			sets := kube.AppsV1().StatefulSets(f.namespace)
			return requests(sets.List, sets.Watch)
		})
	case *batchv1.Job:
		create = f.plain(object, func(kube kubernetes.Interface) *cache.ListWatch {
			jobs := kube.BatchV1().Jobs(f.namespace)
			return requests(jobs.List, jobs.Watch)
		})
	case *batchv1.CronJob:
		create = f.plain(object, func(kube kubernetes.Interface) *cache.ListWatch {
			cronJobs := kube.BatchV1().CronJobs(f.namespace)
			return requests(cronJobs.List, cronJobs.Watch)
		})
	case *corev1.Node:
		create = f.guarded(object, func(kube kubernetes.Interface) *cache.ListWatch {
			nodes := kube.CoreV1().Nodes()
			return requests(nodes.List, nodes.Watch)
		})
	case *corev1.Namespace:
		create = f.guarded(object, func(kube kubernetes.Interface) *cache.ListWatch {
			namespaces := kube.CoreV1().Namespaces()
			return requests(namespaces.List, namespaces.Watch)
		})
	case *corev1.ResourceQuota:
		create = f.guarded(object, func(kube kubernetes.Interface) *cache.ListWatch {
			quotas := kube.CoreV1().ResourceQuotas(f.namespace)
			return f.inPages(requests(quotas.List, quotas.Watch), smallPage)
		})
	case *corev1.LimitRange:
		create = f.plain(object, func(kube kubernetes.Interface) *cache.ListWatch {
			ranges := kube.CoreV1().LimitRanges(f.namespace)
			return f.inPages(requests(ranges.List, ranges.Watch), smallPage)
		})
	case *corev1.ReplicationController:
		create = f.plain(object, func(kube kubernetes.Interface) *cache.ListWatch {
			controllers := kube.CoreV1().ReplicationControllers(f.namespace)
			return f.inPages(requests(controllers.List, controllers.Watch), smallPage)
		})
	case *appsv1.DaemonSet:
		create = f.plain(object, func(kube kubernetes.Interface) *cache.ListWatch {
			sets := kube.AppsV1().DaemonSets(f.namespace)
			return f.inPages(requests(sets.List, sets.Watch), smallPage)
		})
	case *autoscalingv2.HorizontalPodAutoscaler:
		create = f.guarded(object, func(kube kubernetes.Interface) *cache.ListWatch {
			autoscalers := kube.AutoscalingV2().HorizontalPodAutoscalers(f.namespace)
			return requests(autoscalers.List, autoscalers.Watch)
		})
	case *policyv1.PodDisruptionBudget:
		create = f.guarded(object, func(kube kubernetes.Interface) *cache.ListWatch {
			budgets := kube.PolicyV1().PodDisruptionBudgets(f.namespace)
			return requests(budgets.List, budgets.Watch)
		})
	}
	informer := f.SharedInformerFactory.InformerFor(object, create)
	f.sizes.Add(resourceOf(object), informer.GetStore())
	return informer
}

// requests are those of a typed client, of which those of informers are made.
func requests[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error), watching cache.WatchFuncWithContext) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) },
		WatchFuncWithContext: watching,
	}
}

func (f *factory) informer(kube kubernetes.Interface, object runtime.Object, resync time.Duration, optional bool, asks *cache.ListWatch) cache.SharedIndexInformer {
	tweaked := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			f.tweak(&o)
			return asks.ListWithContextFunc(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			f.tweak(&o)
			return asks.WatchFuncWithContext(ctx, o)
		},
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if _, ok := object.(*appsv1.ReplicaSet); ok { // there are many, and nobody lists those of a namespace
		indexers = cache.Indexers{}
	}
	tweaked = f.freshness.track(object, optional, tweaked)
	return cache.NewSharedIndexInformer(listWatcher(tweaked, kube, object, f.namespace, f.freshness != nil), object, resync, indexers)
}

// plain makes informers of nothing but requests.
func (f *factory) plain(object runtime.Object, asks func(kubernetes.Interface) *cache.ListWatch) internalinterfaces.NewInformerFunc {
	return func(kube kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return f.informer(kube, object, resync, false, asks(kube))
	}
}

// paged makes informers that read lists in pages.
func (f *factory) paged(object runtime.Object, asks func(kubernetes.Interface) *cache.ListWatch) internalinterfaces.NewInformerFunc {
	return func(kube kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return f.informer(kube, object, resync, false, f.inPages(asks(kube), pageSize))
	}
}

// inPages makes requests of a list read it in pages of so many objects.
func (f *factory) inPages(asks *cache.ListWatch, size int64) *cache.ListWatch {
	list := asks.ListWithContextFunc
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return f.pages(ctx, o, list, size)
		},
		WatchFuncWithContext: asks.WatchFuncWithContext,
	}
}

// guarded makes informers that notice when they may not read their objects.
func (f *factory) guarded(object runtime.Object, asks func(kubernetes.Interface) *cache.ListWatch) internalinterfaces.NewInformerFunc {
	return func(kube kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		g := &guarded{trust: f.trust}
		g.SharedIndexInformer = f.informer(kube, object, resync, true, g.guard(asks(kube)))
		return g
	}
}

// trimmed is a list of trimmed objects.
type trimmed struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []runtime.Object
}

// DeepCopyObject returns a list with the same objects: nobody may change them.
func (l *trimmed) DeepCopyObject() runtime.Object {
	other := *l
	return &other
}

// pages reads a whole list. It asks for the current state, whichever was asked for,
// since a server has pages of no other.
func (f *factory) pages(ctx context.Context, o metav1.ListOptions, list cache.ListWithContextFunc, size int64) (runtime.Object, error) {
	o.ResourceVersion, o.ResourceVersionMatch, o.Continue, o.Limit = "", "", "", size
	all := &trimmed{}
	for {
		page, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(page, func(object runtime.Object) error {
			kept, err := f.trim(object)
			if err != nil {
				return err
			}
			item, ok := kept.(runtime.Object)
			if !ok {
				return fmt.Errorf("a trimmed %T is no API object", object)
			}
			all.Items = append(all.Items, item)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("trim a page of a list: %w", err)
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return nil, fmt.Errorf("read a page of a list: %w", err)
		}
		all.ResourceVersion, o.Continue = about.GetResourceVersion(), about.GetContinue()
		if o.Continue == "" {
			return all, nil
		}
	}
}

// GetObjectKind returns a kind that cannot be set: informers need none.
func (r *ReplicaSet) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns a copy; its owner and selector are those of r, which
// nobody may change.
func (r *ReplicaSet) DeepCopyObject() runtime.Object {
	other := *r
	return &other
}
