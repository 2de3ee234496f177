package sizing

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Owners yields a workload and the controllers above it, such as Resolver.OwnerChain.
type Owners func(target.Key) iter.Seq[target.Key]

// Scales reports whether a HorizontalPodAutoscaler scales pods of a workload: its scale target is
// the workload or is controlled by it. API versions are ignored. A group that is invalid for its
// kind, such as an empty group for a custom resource, matches any group.
func Scales(h *autoscalingv2.HorizontalPodAutoscaler, workload target.Key, owners Owners) bool {
	if h.Namespace != workload.Namespace {
		return false
	}
	for key := range owners(scaleTarget(h)) {
		if key == workload || key == anyGroup(workload) {
			return true
		}
	}
	return false
}

func scaleTarget(h *autoscalingv2.HorizontalPodAutoscaler) target.Key {
	ref := &h.Spec.ScaleTargetRef
	key := target.NewKey(h.Namespace, ref.APIVersion, ref.Kind, ref.Name)
	if !strings.Contains(key.Group, ".") { // groups of custom resources have a dot
		return anyGroup(key)
	}
	return key
}

func anyGroup(key target.Key) target.Key {
	key.Group = ""
	return key
}

const anyContainer = ""

// HPAResources are resources, by container, with requests that affect HPAs. Nil means none.
type HPAResources map[string][resources.Kinds]bool

// For returns the resources of one container.
func (l HPAResources) For(container string) (kinds [resources.Kinds]bool) {
	all, one := l[anyContainer], l[container]
	for k := range kinds {
		kinds[k] = all[k] || one[k]
	}
	return kinds
}

// Conflicts returns the resources that these rules change although HPAs depend on the requests.
func (l HPAResources) Conflicts(rules policy.Rules) (kinds [resources.Kinds]bool) {
	for container, dependent := range l {
		for k := range resources.Kind(resources.Kinds) {
			if dependent[k] && controls(rules, container, k) {
				kinds[k] = true
			}
		}
	}
	return kinds
}

// controls accepts anyContainer.
func controls(rules policy.Rules, container string, k resources.Kind) bool {
	does := func(r policy.Rule) bool { return !r.Off && r.Controlled[k] }
	return container == anyContainer && slices.ContainsFunc(rules.Entries, func(e policy.Entry) bool { return does(e.Rule) }) ||
		does(rules.For(container))
}

// UtilizationResources returns the resources that a HorizontalPodAutoscaler compares with requests
// in percent. Absolute values and other metrics do not depend on requests. Without metrics the API
// server uses CPU.
func UtilizationResources(h *autoscalingv2.HorizontalPodAutoscaler) HPAResources {
	var looked HPAResources
	add := func(container string, name corev1.ResourceName, targetType autoscalingv2.MetricTargetType) {
		if targetType == autoscalingv2.AverageValueMetricType || targetType == autoscalingv2.ValueMetricType {
			return
		}
		for k := range resources.Kind(resources.Kinds) {
			if convert.ResourceName(k) == name {
				looked = looked.with(container, k)
			}
		}
	}
	if h.Spec.Metrics == nil {
		add(anyContainer, corev1.ResourceCPU, autoscalingv2.UtilizationMetricType)
	}
	for i := range h.Spec.Metrics {
		switch m := &h.Spec.Metrics[i]; {
		case m.Resource != nil:
			add(anyContainer, m.Resource.Name, m.Resource.Target.Type)
		case m.ContainerResource != nil:
			add(m.ContainerResource.Container, m.ContainerResource.Name, m.ContainerResource.Target.Type)
		}
	}
	return looked
}

func (l HPAResources) with(container string, k resources.Kind) HPAResources {
	if l == nil {
		l = HPAResources{}
	}
	kinds := l[container]
	kinds[k] = true
	l[container] = kinds
	return l
}

func (l HPAResources) merge(o HPAResources) HPAResources {
	for container, kinds := range o {
		for k, is := range kinds {
			if is {
				l = l.with(container, resources.Kind(k))
			}
		}
	}
	return l
}

// ownersTTL is how long owners are cached, and the minimum time between two reads of a namespace
// after changes.
const ownersTTL = 10 * time.Second

// HorizontalPodAutoscalers finds the requests that affect HorizontalPodAutoscalers. Create it with
// WatchHPAs. It is safe for concurrent use.
type HorizontalPodAutoscalers struct {
	informer cache.SharedIndexInformer
	lister   autoscalinglisters.HorizontalPodAutoscalerLister
	ready    cache.InformerSynced
	owners   Owners

	mu         sync.Mutex
	namespaces map[string]*namespaceHPAs
}

// namespaceHPAs are the resources that affect HorizontalPodAutoscalers of a namespace, for each
// scale target and its owners. They are read once, without the lock of other namespaces.
type namespaceHPAs struct {
	since       time.Time
	invalidated time.Time // time of the latest read after a change
	once        sync.Once
	byWorkload  map[target.Key]HPAResources
}

// WatchHPAs reads HorizontalPodAutoscalers with an informer of a factory. Call it before the
// factory starts. The consequence is logged if they cannot be read.
func WatchHPAs(core informers.SharedInformerFactory, owners Owners, consequence string) (*HorizontalPodAutoscalers, error) {
	all := core.Autoscaling().V2().HorizontalPodAutoscalers()
	h := &HorizontalPodAutoscalers{informer: all.Informer(), lister: all.Lister(), owners: owners, namespaces: map[string]*namespaceHPAs{}}
	var err error
	if h.ready, err = client.OptionalSync(h.informer, consequence); err != nil {
		return nil, fmt.Errorf("watch HorizontalPodAutoscalers: %w", err)
	}
	_, err = h.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: h.invalidate,
		UpdateFunc: func(before, after any) {
			if !sameSpec(before, after) {
				h.invalidate(after)
			}
		},
		DeleteFunc: h.invalidate,
	})
	if err != nil {
		return nil, fmt.Errorf("watch HorizontalPodAutoscalers: %w", err)
	}
	return h, nil
}

func sameSpec(before, after any) bool {
	b, known := before.(*autoscalingv2.HorizontalPodAutoscaler)
	a, is := after.(*autoscalingv2.HorizontalPodAutoscaler)
	return known && is && apiequality.Semantic.DeepEqual(b.Spec, a.Spec)
}

// invalidate causes a new read of a namespace. Further changes within ownersTTL wait for the next
// regular read, so that frequent changes do not cause a read for each pod.
func (h *HorizontalPodAutoscalers) invalidate(object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if pods := h.namespaces[name.Namespace]; pods != nil && now.Sub(pods.invalidated) >= ownersTTL {
		h.namespaces[name.Namespace] = &namespaceHPAs{since: now, invalidated: now}
	}
}

// Synced reports whether the cache is synced, or HorizontalPodAutoscalers cannot be read.
func (h *HorizontalPodAutoscalers) Synced() bool { return h.ready() }

// Resources returns the resources of a workload that affect HPAs, nil if none, all if the receiver
// is nil or HPAs cannot be read. The result must not be modified.
func (h *HorizontalPodAutoscalers) Resources(workload target.Key) HPAResources {
	if h == nil || !h.informer.HasSynced() {
		return HPAResources{anyContainer: {true, true}}
	}
	pods := h.namespaceState(workload.Namespace)
	pods.once.Do(func() { pods.byWorkload = h.readNamespace(workload.Namespace) })
	if workload.Group == "" {
		return pods.byWorkload[workload]
	}
	named, other := pods.byWorkload[workload], pods.byWorkload[anyGroup(workload)]
	if len(other) == 0 {
		return named
	}
	return HPAResources(nil).merge(named).merge(other)
}

func (h *HorizontalPodAutoscalers) namespaceState(namespace string) *namespaceHPAs {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, pods := time.Now(), h.namespaces[namespace]
	switch {
	case pods == nil:
		pods = &namespaceHPAs{since: now}
	case now.Sub(pods.since) >= ownersTTL:
		pods = &namespaceHPAs{since: now, invalidated: pods.invalidated}
	default:
		return pods
	}
	h.namespaces[namespace] = pods
	return pods
}

func (h *HorizontalPodAutoscalers) readNamespace(namespace string) map[target.Key]HPAResources {
	all, err := h.lister.HorizontalPodAutoscalers(namespace).List(labels.Everything())
	if err != nil { // impossible: the informer has the namespace index
		return nil
	}
	looked := map[target.Key]HPAResources{}
	for _, one := range all {
		looks := UtilizationResources(one)
		if looks == nil {
			continue
		}
		for key := range h.owners(scaleTarget(one)) {
			looked[key] = looked[key].merge(looks)
		}
	}
	return looked
}
