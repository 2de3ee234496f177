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

// CPULimit returns the current CPU limit of a container in millicores, or 0 without limit or pod.
func CPULimit(pod *corev1.Pod, container string) resources.Amount {
	_, limits := currentResources(pod, container)
	return limits.Value(resources.CPU)
}

func currentResources(pod *corev1.Pod, container string) (requests, limits resources.List) {
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

// Pods looks up current pods in a cache.
type Pods struct{ listers.PodLister }

// Limit returns the current CPU limit of a container in millicores, or 0 without limit or pod.
func (p Pods) Limit(c usage.ContainerKey) resources.Amount {
	return CPULimit(p.pod(c), c.Container)
}

// Request returns the current CPU request of a container in millicores, or 0 if none or unknown.
func (p Pods) Request(c usage.ContainerKey) resources.Amount {
	requests, _ := currentResources(p.pod(c), c.Container)
	return requests.Value(resources.CPU)
}

func (p Pods) pod(c usage.ContainerKey) *corev1.Pod {
	pod, err := p.Pods(c.Namespace).Get(c.Pod)
	if err != nil {
		return nil
	}
	return pod
}

// Started returns when a container started, or the zero time if unknown.
func (p Pods) Started(c usage.ContainerKey) time.Time {
	return client.StartOf(p.PodLister, c.Namespace, c.Pod, c.Container)
}

// Restarted reports whether a container has restarted in its pod.
func (p Pods) Restarted(c usage.ContainerKey) bool {
	pod := p.pod(c)
	return pod != nil && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == c.Container && s.RestartCount > 0
	})
}

// running yields the running pods of a VPA by name with the container, nil if missing.
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

// Requests returns the current requests of a container in the first running pod that has some.
func (p Pods) Requests(v *model.VPA, container string) resources.List {
	for pod := range p.running(v, container) {
		if requests, _ := currentResources(pod, container); !requests.Empty() {
			return requests
		}
	}
	return resources.List{}
}

// MemoryLimit returns the lowest memory limit of a container over running pods in bytes, or 0.
func (p Pods) MemoryLimit(v *model.VPA, container string) resources.Amount {
	least := resources.Amount(0)
	for pod := range p.running(v, container) {
		_, limits := currentResources(pod, container)
		if limit := limits.Value(resources.Memory); limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// CurrentRequests returns for each kind the median current request of a container over running pods
// without startup boosts, the lower one of two. The median ignores single pods created by hand or
// changed last. Without running pods it returns the last recommended target.
func (p Pods) CurrentRequests(v *model.VPA, container string) resources.List {
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
			// After a boost the annotation is removed before the kubelet lowers the CPU.
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

// If memory limits do not follow the requests, the upper memory bound is the memory to protect by a
// limit. It is published, held and saved like a target.

// convertPublished converts between the two meanings of the upper memory bound. Limits that
// followed the requests protected the target.
func convertPublished(before status.Recommended, was, is bool) status.Recommended {
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

// raiseHeldMemory raises published memory to the new values if memory is untrusted, because a kill
// raises the memory to protect even if the request would be lower.
func raiseHeldMemory(before, now status.Recommended, doubted bool) status.Recommended {
	if !doubted {
		return before
	}
	before.Target = withMoreMemory(before.Target, now.Target)
	before.LowerBound = withMoreMemory(before.LowerBound, now.LowerBound)
	before.UpperBound = withMoreMemory(before.UpperBound, now.UpperBound)
	before.UncappedTarget = withMoreMemory(before.UncappedTarget, now.UncappedTarget)
	return before
}

func withMemory(list, from corev1.ResourceList) corev1.ResourceList {
	q, found := from[corev1.ResourceMemory]
	if !found {
		return list
	}
	return setMemory(list, q)
}

// withMoreMemory takes the memory of another list if both have some and the other has more.
func withMoreMemory(list, from corev1.ResourceList) corev1.ResourceList {
	q, found := from[corev1.ResourceMemory]
	if has, some := list[corev1.ResourceMemory]; !found || !some || q.Cmp(has) <= 0 {
		return list
	}
	return setMemory(list, q)
}

// setMemory copies the list, because it may belong to a cached object.
func setMemory(list corev1.ResourceList, memory resource.Quantity) corev1.ResourceList {
	list = maps.Clone(list)
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourceMemory] = memory
	return list
}

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
	message := "memory requests follow usage; a memory limit is the upper bound x declared limit / declared request"
	if len(equal) > 0 {
		message += fmt.Sprintf("; the request stays equal to the limit in containers: %s", strings.Join(equal, ", "))
	}
	return message
}

// Nodes is a cache.ResourceEventHandler for node capacity. It is safe for concurrent use.
type Nodes struct {
	pods listers.PodLister

	mu       sync.RWMutex
	capacity map[string]resources.List // by name
	largest  resources.List            // by kind, of all nodes since the start
}

// NewNodes returns empty Nodes.
func NewNodes(pods listers.PodLister) *Nodes {
	return &Nodes{pods: pods, capacity: map[string]resources.List{}}
}

// Ceiling returns the maximum possible usage of a container: the capacity of its node, else the
// largest capacity of any node or, without nodes, the end of the histogram (usage.MaxUsage).
func (n *Nodes) Ceiling(c usage.ContainerKey, k resources.Kind) resources.Amount {
	name := client.NodeOf(n.pods, c.Namespace, c.Pod)
	n.mu.RLock()
	defer n.mu.RUnlock()
	most := n.capacity[name].Value(k)
	if most <= 0 {
		most = n.largest.Value(k)
	}
	return usage.MaxUsage(k, most)
}

// PastNodes are unknown nodes, possibly larger than all current ones.
type PastNodes struct{}

// Ceiling returns the maximum possible usage at any time.
func (PastNodes) Ceiling(_ usage.ContainerKey, k resources.Kind) resources.Amount {
	return usage.MaxUsage(k, 0)
}

// cachedNode is the cached part of a node. An empty corev1.Node takes 1 KiB.
type cachedNode struct {
	metav1.ObjectMeta

	capacity resources.List // CPU and memory
}

// OnAdd adds a node.
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

// OnUpdate updates a node.
func (n *Nodes) OnUpdate(_, newer any) { n.OnAdd(newer, false) }

// OnDelete removes a node.
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
