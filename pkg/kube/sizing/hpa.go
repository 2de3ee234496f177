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

// Owners yields a workload and the controllers above it. Resolver.From and Live.From do it.
type Owners func(target.Key) iter.Seq[target.Key]

// Scales reports whether a HorizontalPodAutoscaler scales pods of a workload: it names the workload,
// or something that the workload controls. A reference is compared without its version. A group that
// cannot be that of its kind, such as none for a custom resource, matches any group.
func Scales(h *autoscalingv2.HorizontalPodAutoscaler, workload target.Key, owners Owners) bool {
	if h.Namespace != workload.Namespace {
		return false
	}
	for key := range owners(scaled(h)) {
		if key == workload || key == anyGroup(workload) {
			return true
		}
	}
	return false
}

// scaled returns the workload that a HorizontalPodAutoscaler names.
func scaled(h *autoscalingv2.HorizontalPodAutoscaler) target.Key {
	ref := &h.Spec.ScaleTargetRef
	key := target.NewKey(h.Namespace, ref.APIVersion, ref.Kind, ref.Name)
	if !strings.Contains(key.Group, ".") { // that of a custom resource has a dot
		return anyGroup(key)
	}
	return key
}

// anyGroup returns a reference to a workload without its API group.
func anyGroup(key target.Key) target.Key {
	key.Group = ""
	return key
}

// anyContainer stands for all containers of a pod.
const anyContainer = ""

// LookedAt are the resources, by container, whose requests change what HorizontalPodAutoscalers do. Nil: none.
type LookedAt map[string][resources.Kinds]bool

// Of returns the resources of one container.
func (l LookedAt) Of(container string) (kinds [resources.Kinds]bool) {
	all, one := l[anyContainer], l[container]
	for k := range kinds {
		kinds[k] = all[k] || one[k]
	}
	return kinds
}

// Against returns the resources that a VPA with these rules changes although HorizontalPodAutoscalers
// depend on the requests.
func (l LookedAt) Against(rules policy.Rules) (kinds [resources.Kinds]bool) {
	for container, looked := range l {
		for k := range resources.Kind(resources.Kinds) {
			if looked[k] && controls(rules, container, k) {
				kinds[k] = true
			}
		}
	}
	return kinds
}

// controls reports whether rules let a resource of a container change, or of any container.
func controls(rules policy.Rules, container string, k resources.Kind) bool {
	does := func(r policy.Rule) bool { return !r.Off && r.Controlled[k] }
	return container == anyContainer && slices.ContainsFunc(rules.Entries, func(e policy.Entry) bool { return does(e.Rule) }) ||
		does(rules.For(container))
}

// Looks returns the resources whose requests change what a HorizontalPodAutoscaler does. That are those
// it compares as a part of the request. Amounts, and metrics that are no resources of pods, do not
// depend on requests. Without any metric the API server uses CPU.
func Looks(h *autoscalingv2.HorizontalPodAutoscaler) LookedAt {
	var looked LookedAt
	note := func(container string, name corev1.ResourceName, of autoscalingv2.MetricTargetType) {
		if of == autoscalingv2.AverageValueMetricType || of == autoscalingv2.ValueMetricType {
			return
		}
		for k := range resources.Kind(resources.Kinds) {
			if convert.ResourceName(k) == name {
				looked = looked.with(container, k)
			}
		}
	}
	if h.Spec.Metrics == nil {
		note(anyContainer, corev1.ResourceCPU, autoscalingv2.UtilizationMetricType)
	}
	for i := range h.Spec.Metrics {
		switch m := &h.Spec.Metrics[i]; {
		case m.Resource != nil:
			note(anyContainer, m.Resource.Name, m.Resource.Target.Type)
		case m.ContainerResource != nil:
			note(m.ContainerResource.Container, m.ContainerResource.Name, m.ContainerResource.Target.Type)
		}
	}
	return looked
}

func (l LookedAt) with(container string, k resources.Kind) LookedAt {
	if l == nil {
		l = LookedAt{}
	}
	kinds := l[container]
	kinds[k] = true
	l[container] = kinds
	return l
}

// merge adds what others look at.
func (l LookedAt) merge(o LookedAt) LookedAt {
	for container, kinds := range o {
		for k, is := range kinds {
			if is {
				l = l.with(container, resources.Kind(k))
			}
		}
	}
	return l
}

// ownersLife is how long the owners of scaled workloads are taken from memory, and the least time between
// two reads of a namespace because HorizontalPodAutoscalers changed.
const ownersLife = 10 * time.Second

// HorizontalPodAutoscalers knows which requests matter to them. Make it with WatchHPAs. It is safe for concurrent use.
type HorizontalPodAutoscalers struct {
	informer cache.SharedIndexInformer
	lister   autoscalinglisters.HorizontalPodAutoscalerLister
	known    cache.InformerSynced
	owners   Owners

	mu         sync.Mutex
	namespaces map[string]*scaledPods
}

// scaledPods is what HorizontalPodAutoscalers of a namespace look at, by workload: the one that each
// names, and those above it. It is read once, without the lock of other namespaces.
type scaledPods struct {
	since  time.Time
	forced time.Time // of the latest read because of a change
	read   sync.Once
	looked map[target.Key]LookedAt
}

// WatchHPAs returns what the informer of a factory knows. It must be called before that starts.
// The sentence says what follows if they cannot be read.
func WatchHPAs(core informers.SharedInformerFactory, owners Owners, sentence string) (*HorizontalPodAutoscalers, error) {
	all := core.Autoscaling().V2().HorizontalPodAutoscalers()
	h := &HorizontalPodAutoscalers{informer: all.Informer(), lister: all.Lister(), owners: owners, namespaces: map[string]*scaledPods{}}
	var err error
	if h.known, err = client.OptionalSync(h.informer, sentence); err != nil {
		return nil, fmt.Errorf("watch HorizontalPodAutoscalers: %w", err)
	}
	_, err = h.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: h.forget,
		UpdateFunc: func(before, after any) {
			if !sameSpec(before, after) {
				h.forget(after)
			}
		},
		DeleteFunc: h.forget,
	})
	if err != nil {
		return nil, fmt.Errorf("watch HorizontalPodAutoscalers: %w", err)
	}
	return h, nil
}

// sameSpec reports whether an update leaves the spec of a HorizontalPodAutoscaler alone, as those of its status do.
func sameSpec(before, after any) bool {
	b, known := before.(*autoscalingv2.HorizontalPodAutoscaler)
	a, is := after.(*autoscalingv2.HorizontalPodAutoscaler)
	return known && is && apiequality.Semantic.DeepEqual(b.Spec, a.Spec)
}

// forget has a namespace read again after one of its HorizontalPodAutoscalers changed. Further changes
// within ownersLife take effect with the next regular read, so that a namespace that changes them all the
// time is not read for each pod.
func (h *HorizontalPodAutoscalers) forget(object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if pods := h.namespaces[name.Namespace]; pods != nil && now.Sub(pods.forced) >= ownersLife {
		h.namespaces[name.Namespace] = &scaledPods{since: now, forced: now}
	}
}

// Synced reports whether it is known what there is, or that it cannot be read.
func (h *HorizontalPodAutoscalers) Synced() bool { return h.known() }

// LooksAt returns the resources of a workload's pods whose requests matter; nil: none does. As long as
// HorizontalPodAutoscalers cannot be read, all may. So it is for a nil receiver. The caller must not change the result.
func (h *HorizontalPodAutoscalers) LooksAt(workload target.Key) LookedAt {
	if h == nil || !h.informer.HasSynced() {
		return LookedAt{anyContainer: {true, true}}
	}
	pods := h.scaled(workload.Namespace)
	pods.read.Do(func() { pods.looked = h.look(workload.Namespace) })
	if workload.Group == "" {
		return pods.looked[workload]
	}
	named, other := pods.looked[workload], pods.looked[anyGroup(workload)]
	if len(other) == 0 {
		return named
	}
	return LookedAt(nil).merge(named).merge(other)
}

// scaled returns what is known of a namespace, or is to be read.
func (h *HorizontalPodAutoscalers) scaled(namespace string) *scaledPods {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, pods := time.Now(), h.namespaces[namespace]
	switch {
	case pods == nil:
		pods = &scaledPods{since: now}
	case now.Sub(pods.since) >= ownersLife:
		pods = &scaledPods{since: now, forced: pods.forced}
	default:
		return pods
	}
	h.namespaces[namespace] = pods
	return pods
}

// look reads what the HorizontalPodAutoscalers of a namespace look at.
func (h *HorizontalPodAutoscalers) look(namespace string) map[target.Key]LookedAt {
	all, err := h.lister.HorizontalPodAutoscalers(namespace).List(labels.Everything())
	if err != nil { // without the index of the informer, which is our own
		return nil
	}
	looked := map[target.Key]LookedAt{}
	for _, one := range all {
		looks := Looks(one)
		if looks == nil {
			continue
		}
		for key := range h.owners(scaled(one)) {
			looked[key] = looked[key].merge(looks)
		}
	}
	return looked
}
