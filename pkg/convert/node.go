package convert

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Labels and taints of nodes whose size follows their pods: virtual nodes, which stand for a provider
// that runs each pod on its own, and nodes that are made for one pod.
const (
	nodeTypeLabel         = "type"
	virtualNode           = "virtual-kubelet"
	computeTypeKey        = "eks.amazonaws.com/compute-type"
	singlePodNode         = "fargate"
	virtualNodeTaintKey   = "virtual-kubelet.io/provider"
	ekletInstance         = "eklet"
	ekletTaintKey         = "eks.tke.cloud.tencent.com/eklet"
	instanceTypeNodeLabel = corev1.LabelInstanceTypeStable
	singlePodScheduler    = "fargate-scheduler"
)

// FollowsPods reports whether the size of a node follows its pods, so that a new pod of any size gets
// one of its own, or room on this one.
func FollowsPods(node *corev1.Node) bool {
	return FollowsPod(node) || node.Labels[nodeTypeLabel] == virtualNode || node.Labels[instanceTypeNodeLabel] == ekletInstance ||
		slices.ContainsFunc(node.Spec.Taints, followsPodsTaint)
}

// FollowsPod reports whether a node was made for one pod, and takes no other.
func FollowsPod(node *corev1.Node) bool {
	return node.Labels[computeTypeKey] == singlePodNode ||
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == computeTypeKey && t.Value == singlePodNode })
}

// GetsOwnNode reports whether the scheduler of a pod makes a node for it.
func GetsOwnNode(scheduler string) bool { return scheduler == singlePodScheduler }

func followsPodsTaint(t corev1.Taint) bool {
	return t.Key == virtualNodeTaintKey || t.Key == ekletTaintKey || t.Key == computeTypeKey && t.Value == singlePodNode
}

// FollowsPodsSigns returns the labels and taints that FollowsPods and FollowsPod read.
func FollowsPodsSigns(node *corev1.Node) (labels map[string]string, taints []corev1.Taint) {
	for key, value := range map[string]string{nodeTypeLabel: virtualNode, computeTypeKey: singlePodNode, instanceTypeNodeLabel: ekletInstance} {
		if node.Labels[key] == value {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	for _, t := range node.Spec.Taints {
		if followsPodsTaint(t) {
			taints = append(taints, t)
		}
	}
	return labels, taints
}

// AlwaysThere reports whether a pod belongs to its node: a node of the same kind has one as well. It is a pod of
// a DaemonSet or a static pod.
func AlwaysThere(pod *corev1.Pod) bool {
	return IsStatic(pod) || controlledBy(pod, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
}

// IsStatic reports whether a pod stands for a static one: its node owns it.
func IsStatic(pod *corev1.Pod) bool {
	return controlledBy(pod, corev1.SchemeGroupVersion.WithKind("Node"))
}

func controlledBy(pod *corev1.Pod, kind schema.GroupVersionKind) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == kind.GroupKind()
}
