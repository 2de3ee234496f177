package plan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

// StaticCPUNodes are the nodes with the static CPU manager policy: nodes that Selector selects, and
// nodes that refused a resize for that reason in the last 24 hours. One goroutine calls Mark. Await
// and Static are safe for concurrent use.
type StaticCPUNodes struct {
	Selector labels.Selector        // nil: selects none
	Lister   corelisters.NodeLister // nil: nodes cannot be listed
	Informer snapshot.Informer      // set with Lister

	refused map[string]refusal // by node name
	marked  atomic.Pointer[map[string]bool]
}

// awaitTimeout is the timeout of Await: without permission the cache never syncs.
const awaitTimeout = 30 * time.Second

// Await waits until the cache of nodes has synced, at most awaitTimeout.
func (n *StaticCPUNodes) Await(ctx context.Context) {
	if n.Informer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	cache.WaitForCacheSync(ctx.Done(), n.Informer.HasSynced)
}

// Static reports whether a node had the static policy at the last Mark or is selected now.
func (n *StaticCPUNodes) Static(node string) bool {
	if marked := n.marked.Load(); marked != nil && (*marked)[node] {
		return true
	}
	if n.Selector == nil || !n.canList() {
		return false
	}
	object, err := n.Lister.Get(node)
	return err == nil && n.Selector.Matches(labels.Set(object.Labels))
}

// ParseStaticCPUNodes parses a selector of nodes. The empty selector selects none.
func ParseStaticCPUNodes(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil || selector.Empty() {
		return labels.Nothing(), err
	}
	return selector, nil
}

type refusal struct {
	at   time.Time
	node types.UID // detects a new node of that name; empty: unknown
}

// refusalLifetime is how long a refusal counts, since the policy of a kubelet may change.
const refusalLifetime = 24 * time.Hour

// MarkStaticCPU records the refusals of nodes from the pods of a view, and marks pods on nodes with the
// static policy. object returns a pod, or nil if it is gone. After an error only refusals count.
func (n *StaticCPUNodes) MarkStaticCPU(v *disruption.View, object func(disruption.Subject) *corev1.Pod, now time.Time) error {
	static, err := n.selectedNodes()
	eachPod(v, func(p *disruption.Pod) {
		if p.Resize != disruption.ResizeInfeasible {
			return
		}
		if !isStaticCPURefusal(object(disruption.Subject{Namespace: p.Namespace, Pod: p.Name, UID: p.UID})) {
			return
		}
		if n.refused == nil {
			n.refused = map[string]refusal{}
		}
		uid, _ := n.lookup(p.Node)
		n.refused[p.Node] = refusal{now, uid}
	})
	maps.DeleteFunc(n.refused, func(name string, r refusal) bool {
		uid, exists := n.lookup(name)
		replaced := uid != r.node && uid != "" && r.node != ""
		return !exists || replaced || now.Sub(r.at) >= refusalLifetime
	})
	for name := range n.refused {
		static[name] = true
	}
	n.marked.Store(&static)
	if len(static) > 0 {
		eachPod(v, func(p *disruption.Pod) {
			p.StaticCPU = static[p.Node]
			// Renew a refusal while it keeps a boosted pod. Otherwise the boost would be removed
			// each day, refused, and the pod evicted and boosted again.
			if r, known := n.refused[p.Node]; known && p.Boosted && p.CPURefused() {
				n.refused[p.Node] = refusal{now, r.node}
			}
		})
	}
	return err
}

func eachPod(v *disruption.View, do func(*disruption.Pod)) {
	for i := range v.VPAs {
		if v.VPAs[i].Held != "" {
			continue // its pods get no recommendation
		}
		pods := v.VPAs[i].Pods
		for j := range pods {
			do(&pods[j])
		}
	}
}

func (n *StaticCPUNodes) selectedNodes() (map[string]bool, error) {
	names := map[string]bool{}
	if n.Selector == nil || !n.canList() {
		return names, nil
	}
	nodes, err := n.Lister.List(n.Selector)
	if err != nil {
		return names, fmt.Errorf("list nodes: %w", err)
	}
	for _, node := range nodes {
		names[node.Name] = true
	}
	return names, nil
}

func (n *StaticCPUNodes) canList() bool { return n.Lister != nil && n.Informer.HasSynced() }

// lookup returns the UID of a node, and whether it may exist.
func (n *StaticCPUNodes) lookup(name string) (uid types.UID, exists bool) {
	if !n.canList() {
		return "", true
	}
	node, err := n.Lister.Get(name)
	if err != nil {
		return "", !apierrors.IsNotFound(err)
	}
	return node.UID, true
}

// isStaticCPURefusal reports whether the node of a pod refuses a resize because of its static CPU
// manager policy. The message differs between versions: `alongside CPU Manager static policy` in
// 1.33, `alongside CPU Manager policy "static"` since.
func isStaticCPURefusal(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		message := strings.ToLower(c.Message)
		return c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonInfeasible &&
			strings.Contains(message, "cpu manager") && strings.Contains(message, "static")
	})
}

// TrimNode returns client.Trim that also keeps the labels of nodes that a selector uses.
func TrimNode(selector labels.Selector) cache.TransformFunc {
	requirements, _ := selector.Requirements()
	return func(object any) (any, error) {
		trimmed, err := client.Trim(object)
		before, isNode := object.(*corev1.Node)
		if after, ok := trimmed.(*corev1.Node); ok && isNode {
			for _, r := range requirements {
				if value, has := before.Labels[r.Key()]; has {
					if after.Labels == nil {
						after.Labels = map[string]string{}
					}
					after.Labels[r.Key()] = value
				}
			}
		}
		return trimmed, err
	}
}
