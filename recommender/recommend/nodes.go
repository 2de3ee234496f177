package recommend

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

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

// Ceiling returns the most that a container can use of a kind: the capacity of the node of its
// pod. Where that is not known it is the largest capacity of any node or, without nodes, the end
// of the histogram (usage.MaxOn).
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
