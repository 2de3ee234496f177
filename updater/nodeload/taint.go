package nodeload

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TaintKey is the key of the taint of overloaded nodes. With the effect NoSchedule it belongs to
// the updater, whatever its value.
const TaintKey = "loadline.dev/overloaded"

// taint is what an overloaded node gets.
var taint = corev1.Taint{Key: TaintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}

func own(t corev1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }

// Tainted reports whether a node has the taint, so that no new pod comes without a toleration.
func Tainted(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, own) }

// reserved reports whether a taint keeps ordinary pods off a node of the control plane. What
// only has the label of one takes ordinary pods, as in small clusters.
func reserved(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return (t.Key == "node-role.kubernetes.io/control-plane" || t.Key == "node-role.kubernetes.io/master") && t.Effect != corev1.TaintEffectPreferNoSchedule
	})
}

// dedicated reports whether a taint of others keeps ordinary pods off a node: it is for some
// workloads, or has a problem that the control plane found.
func dedicated(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return !own(t) && (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute)
	})
}

// patch returns the merge patch that puts the taint on a node, or takes it off. A merge patch
// replaces the whole list, so the API server refuses it if the node is not as it was read.
func patch(node *corev1.Node, on bool) ([]byte, error) {
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), own)
	if on {
		taints = append(taints, taint)
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
}

// Trim is a cache.TransformFunc that keeps of nodes what a Watcher reads, too, besides what
// another one keeps.
func Trim(other cache.TransformFunc) cache.TransformFunc {
	return func(object any) (any, error) {
		trimmed, err := other(object)
		before, isNode := object.(*corev1.Node)
		if after, ok := trimmed.(*corev1.Node); ok && isNode {
			after.Spec.Taints, after.Status.Addresses = before.Spec.Taints, before.Status.Addresses
			if cpu, has := before.Status.Capacity[corev1.ResourceCPU]; has {
				after.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: cpu}
			}
		}
		return trimmed, err
	}
}
