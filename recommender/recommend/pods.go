package recommend

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// CPULimit returns the limit in millicores that is in force in a container of a
// pod, 0 if there is none; nil = there is no pod.
func CPULimit(pod *corev1.Pod, container string) resources.Amount {
	_, limits := sizes(pod, container)
	return limits.Value(resources.CPU)
}

func sizes(pod *corev1.Pod, container string) (requests, limits resources.List) {
	if pod == nil {
		return requests, limits
	}
	if c := containerOf(pod, container); c != nil {
		current := convert.Current(pod, *c)
		return convert.Resources(current.Requests), convert.Resources(current.Limits)
	}
	return requests, limits
}

func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

// Pods looks up in a cache what pods have now.
type Pods struct{ listers.PodLister }

// Limit returns the CPU limit in millicores that is in force in a container, 0 if there is none or the pod is gone.
func (p Pods) Limit(c usage.ContainerKey) resources.Amount {
	return CPULimit(p.pod(c), c.Container)
}

// Request returns the CPU request in millicores that is in force in a container, 0 if there is none or the pod is gone.
func (p Pods) Request(c usage.ContainerKey) resources.Amount {
	requests, _ := sizes(p.pod(c), c.Container)
	return requests.Value(resources.CPU)
}

func (p Pods) pod(c usage.ContainerKey) *corev1.Pod {
	pod, err := p.Pods(c.Namespace).Get(c.Pod)
	if err != nil {
		return nil
	}
	return pod
}

// Started returns when a container began to run; the zero time if that is not known.
func (p Pods) Started(c usage.ContainerKey) time.Time {
	return client.StartOf(p.PodLister, c.Namespace, c.Pod, c.Container)
}

// Restarted reports whether a container of a pod has been restarted in it.
func (p Pods) Restarted(c usage.ContainerKey) bool {
	pod := p.pod(c)
	return pod != nil && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == c.Container && s.RestartCount > 0
	})
}

// running yields the running pods of a VPA with the container, by name. The container is nil in pods without it.
func (p Pods) running(v *model.VPA, container string) iter.Seq2[*corev1.Pod, *corev1.Container] {
	return func(yield func(*corev1.Pod, *corev1.Container) bool) {
		for _, name := range v.PodNames() {
			pod, err := p.Pods(v.Object.Namespace).Get(name)
			if err != nil || pod.Status.Phase != corev1.PodRunning {
				continue
			}
			if !yield(pod, containerOf(pod, container)) {
				return
			}
		}
	}
}

// Requests returns the requests that are in force in the first pod by name that runs a container of a VPA and has some.
func (p Pods) Requests(v *model.VPA, container string) resources.List {
	for pod := range p.running(v, container) {
		if requests, _ := sizes(pod, container); !requests.Empty() {
			return requests
		}
	}
	return resources.List{}
}

// MemoryLimit returns the least memory limit in bytes of the pods that run a container of a VPA, 0 if none has one.
func (p Pods) MemoryLimit(v *model.VPA, container string) resources.Amount {
	least := resources.Amount(0)
	for pod := range p.running(v, container) {
		_, limits := sizes(pod, container)
		if limit := limits.Value(resources.Memory); limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// InForce returns for each kind the median request, without startup boosts, of the pods that run a container of a VPA,
// the lower one of two. One pod that was made by hand, or is the last one to change, does not decide for all. While
// none runs it is the target that was recommended last, which the next one gets.
func (p Pods) InForce(v *model.VPA, container string) resources.List {
	var values [resources.Kinds][]resources.Amount
	runs, sizing := false, v.Object
	if v.StatusOfOther() {
		sizing = nil
	}
	for pod, c := range p.running(v, container) {
		runs = true
		if c == nil {
			continue
		}
		requests := convert.UnboostedRequests(pod, c, sizing)
		cpu, has := requests.Get(resources.CPU)
		if asked, asks := convert.Resources(c.Resources.Requests).Get(resources.CPU); has && asks {
			// At the end of a boost the annotation is removed before the kubelet has lowered the CPU.
			requests = requests.With(resources.CPU, min(cpu, asked))
		}
		for k := range resources.Kind(resources.Kinds) {
			if request, has := requests.Get(k); has {
				values[k] = append(values[k], request)
			}
		}
	}
	var current resources.List
	for k := range resources.Kind(resources.Kinds) {
		if n := len(values[k]); n > 0 {
			slices.Sort(values[k])
			current = current.With(k, values[k][(n-1)/2])
		} else if t := v.Sketches[container]; !runs && t != nil {
			if target, _, known := t.Target(k); known {
				current = current.With(k, target)
			}
		}
	}
	return current
}

// Where memory limits do not follow the requests, the upper bound of memory is what a limit
// protects, and no bound: it is published, held and saved like a target.

// asSeparate returns what was published in the meaning that it has now. Where limits followed
// the requests, they protected the target; where they do again, what they protected is the target.
func asSeparate(before status.Recommended, was, is bool) status.Recommended {
	if was == is {
		return before
	}
	if is {
		before.UpperBound = withMemory(before.UpperBound, before.Target)
		return before
	}
	before.Target = withMemory(before.Target, before.UpperBound)
	before.UncappedTarget = before.Target
	return before
}

// heldApart returns what was published with the larger amounts of memory of that and of what is recommended now, in
// case memory is held: a kill raises what a limit protects also while the request would be lower.
func heldApart(before, now status.Recommended, doubted bool) status.Recommended {
	if !doubted {
		return before
	}
	before.Target = withMoreMemory(before.Target, now.Target)
	before.LowerBound = withMoreMemory(before.LowerBound, now.LowerBound)
	before.UpperBound = withMoreMemory(before.UpperBound, now.UpperBound)
	before.UncappedTarget = withMoreMemory(before.UncappedTarget, now.UncappedTarget)
	return before
}

// withMemory returns a list with the memory of another, if that has some.
func withMemory(list, from corev1.ResourceList) corev1.ResourceList {
	q, found := from[corev1.ResourceMemory]
	if !found {
		return list
	}
	return put(list, q)
}

// withMoreMemory returns a list with the memory of another, if both have some and that is more.
func withMoreMemory(list, from corev1.ResourceList) corev1.ResourceList {
	q, found := from[corev1.ResourceMemory]
	if has, some := list[corev1.ResourceMemory]; !found || !some || q.Cmp(has) <= 0 {
		return list
	}
	return put(list, q)
}

// put leaves the list as it is: it may be that of an object in a cache.
func put(list corev1.ResourceList, memory resource.Quantity) corev1.ResourceList {
	list = maps.Clone(list)
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourceMemory] = memory
	return list
}

// separateMessage says what the bounds mean, and which requests stay with their limits. It
// does not change while that does not.
func separateMessage(v *model.VPA, recommended []status.Recommended) string {
	var equal []string
	for _, c := range recommended {
		t := v.Sketches[c.ContainerName]
		if t == nil {
			continue
		}
		if ratio, some := t.LimitRatio.Ratio(); some && ratio <= 1 {
			equal = append(equal, c.ContainerName)
		}
	}
	message := "memory requests follow use; a memory limit is the upper bound x declared limit / declared request"
	if len(equal) > 0 {
		message += fmt.Sprintf("; the request stays with the limit, which equals it, of: %s", strings.Join(equal, ", "))
	}
	return message
}

// Nodes holds the capacity of nodes, which bounds what containers can use. It is a
// cache.ResourceEventHandler for an informer of nodes, and safe for concurrent use.
type Nodes struct {
	pods listers.PodLister

	mu       sync.RWMutex
	capacity map[string]resources.List // by name
	largest  resources.List            // by kind, of all nodes since the start
}

// NewNodes returns Nodes that know none yet.
func NewNodes(pods listers.PodLister) *Nodes {
	return &Nodes{pods: pods, capacity: map[string]resources.List{}}
}

// Ceiling returns the most that a container can use of a kind: the capacity of the node of its pod. Where that is not
// known it is the largest capacity of any node or, without nodes, the end of the histogram (usage.MaxOn).
func (n *Nodes) Ceiling(c usage.ContainerKey, k resources.Kind) resources.Amount {
	name := client.NodeOf(n.pods, c.Namespace, c.Pod)
	n.mu.RLock()
	defer n.mu.RUnlock()
	most := n.capacity[name].Value(k)
	if most <= 0 {
		most = n.largest.Value(k)
	}
	return usage.MaxOn(k, most)
}

// PastNodes are the unknown nodes of the past, which may have been larger than all nodes of today.
type PastNodes struct{}

// Ceiling returns the most that a container can have used of a kind at any time.
func (PastNodes) Ceiling(_ usage.ContainerKey, k resources.Kind) resources.Amount {
	return usage.MaxOn(k, 0)
}

// cachedNode is what the cache holds of a node. A corev1.Node takes 1 KiB before anything is in it.
type cachedNode struct {
	metav1.ObjectMeta

	capacity resources.List // CPU and memory
}

// OnAdd takes a node.
func (n *Nodes) OnAdd(object any, _ bool) {
	node, ok := object.(*cachedNode)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.capacity[node.Name] = node.capacity
	for k := range resources.Kind(resources.Kinds) {
		n.largest = n.largest.With(k, max(n.largest.Value(k), node.capacity.Value(k)))
	}
}

// OnUpdate takes the new state of a node.
func (n *Nodes) OnUpdate(_, newer any) { n.OnAdd(newer, false) }

// OnDelete forgets a node. Its pods are gone, too.
func (n *Nodes) OnDelete(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.capacity, name.Name)
	}
}

// TrimNode is a cache.TransformFunc that keeps the CPU and memory of a node.
func TrimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	meta := metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}
	return &cachedNode{meta, convert.Resources(node.Status.Capacity)}, nil
}
