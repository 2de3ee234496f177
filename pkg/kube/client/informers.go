package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/generated/informers/externalversions/autoscaling"
	"loadline.dev/loadline/pkg/generated/informers/externalversions/internalinterfaces"
	"loadline.dev/loadline/pkg/generated/informers/externalversions/loadline"
)

// How often informers hand out all their objects again.
const (
	ControllerResync = 10 * time.Minute
	ObjectResync     = time.Hour // pods, VPAs and checkpoints
)

// Field selectors of the pod informers.
const (
	NotPending = "status.phase!=Pending"                                        // recommender
	Running    = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed" // updater
)

// Factory returns a factory of informers for core objects of one namespace, or
// of all when it is empty, that stores objects as a Trimmer leaves them. A field
// selector, if given, holds for every informer of the factory.
func Factory(kube kubernetes.Interface, namespace string, resync time.Duration, fieldSelector string, options ...Option) informers.SharedInformerFactory {
	trim, tweak := new(Trimmer).Trim, func(options *metav1.ListOptions) { options.FieldSelector = fieldSelector }
	all := informers.NewSharedInformerFactoryWithOptions(kube, resync, informers.WithNamespace(namespace), informers.WithTransform(trim), informers.WithTweakListOptions(tweak))
	return &factory{SharedInformerFactory: all, namespace: namespace, tweak: tweak, trim: trim, trust: trusted, options: apply(options)}
}

// VPAFactory returns a factory of informers for VPAs, checkpoints and SizingRecords of one
// namespace, or of all when it is empty, and for SizingPolicies, which have none.
func VPAFactory(vpa versioned.Interface, namespace string, options ...Option) externalversions.SharedInformerFactory {
	all := externalversions.NewSharedInformerFactoryWithOptions(vpa, ObjectResync,
		externalversions.WithNamespace(namespace),
		externalversions.WithTransform(new(Trimmer).Trim),
	)
	return &vpaFactory{all, namespace, trusted, apply(options)}
}

// vpaFactory is a factory whose informers of SizingPolicies and SizingRecords notice when they
// may not read them; see Optional.
type vpaFactory struct {
	externalversions.SharedInformerFactory

	namespace string
	trust     time.Duration // see trusted
	options
}

// Autoscaling returns the informers of the group autoscaling.k8s.io.
func (f *vpaFactory) Autoscaling() autoscaling.Interface {
	return autoscaling.New(f, f.namespace, nil)
}

// Loadline returns the informers of the group loadline.dev.
func (f *vpaFactory) Loadline() loadline.Interface { return loadline.New(f, f.namespace, nil) }

// InformerFor returns the informer of a kind, which the function makes if there is none and
// the kind is not guarded.
func (f *vpaFactory) InformerFor(object runtime.Object, create internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	switch object.(type) {
	case *vpav1.VerticalPodAutoscaler:
		if f.freshness == nil {
			break
		}
		create = func(vpa versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
			autoscalers := vpa.AutoscalingV1().VerticalPodAutoscalers(f.namespace)
			return f.informer(vpa, object, resync, f.freshness.track(object, false, requests(autoscalers.List, autoscalers.Watch)))
		}
	case *loadlinev1alpha1.SizingPolicy:
		create = f.guarded(object, func(vpa versioned.Interface) *cache.ListWatch {
			policies := vpa.LoadlineV1alpha1().SizingPolicies()
			return requests(policies.List, policies.Watch)
		})
	case *loadlinev1alpha1.SizingRecord:
		create = f.guarded(object, func(vpa versioned.Interface) *cache.ListWatch {
			records := vpa.LoadlineV1alpha1().SizingRecords(f.namespace)
			return requests(records.List, records.Watch)
		})
	}
	informer := f.SharedInformerFactory.InformerFor(object, create)
	f.sizes.Add(resourceOf(object), informer.GetStore())
	return informer
}

// guarded returns what makes the informer of a kind that is guarded.
func (f *vpaFactory) guarded(object runtime.Object, asks func(versioned.Interface) *cache.ListWatch) internalinterfaces.NewInformerFunc {
	return func(vpa versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
		g := &guarded{trust: f.trust}
		g.SharedIndexInformer = f.informer(vpa, object, resync, f.freshness.track(object, true, g.guard(asks(vpa))))
		return g
	}
}

func (f *vpaFactory) informer(vpa versioned.Interface, object runtime.Object, resync time.Duration, asks *cache.ListWatch) cache.SharedIndexInformer {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return cache.NewSharedIndexInformer(listWatcher(asks, vpa, object, f.namespace, f.freshness != nil), object, resync, indexers)
}

// syncNotice is how often a start that waits for its caches says so.
const syncNotice = 30 * time.Second

// Sync waits until the named caches have seen all objects once. While it waits
// it says every half minute for which ones; it returns an error only when ctx
// ends.
func Sync(ctx context.Context, caches map[string]cache.InformerSynced) error {
	var waiting []string
	said := time.Now()
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		waiting = slices.DeleteFunc(slices.Sorted(maps.Keys(caches)), func(name string) bool { return caches[name]() })
		if len(waiting) > 0 && time.Since(said) >= syncNotice {
			said = time.Now()
			klog.FromContext(ctx).Info("Still waiting for the API server to list objects: are the custom resource definitions installed, and may this program list them?", "objects", waiting)
		}
		return len(waiting) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the caches of %s: %w", strings.Join(waiting, ", "), err)
	}
	return nil
}
