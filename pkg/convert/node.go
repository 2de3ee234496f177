package convert

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
)

// Labels and taints of virtual nodes: providers run each pod separately, or create a node for a
// single pod.
const (
	nodeTypeLabel         = "type"
	virtualKubeletType    = "virtual-kubelet"
	computeTypeKey        = "eks.amazonaws.com/compute-type"
	fargateComputeType    = "fargate"
	virtualNodeTaintKey   = "virtual-kubelet.io/provider"
	ekletInstanceType     = "eklet"
	ekletTaintKey         = "eks.tke.cloud.tencent.com/eklet"
	instanceTypeNodeLabel = corev1.LabelInstanceTypeStable
	singlePodScheduler    = "fargate-scheduler"
)

// IsVirtualNode reports whether the capacity of a node follows its pods, so that a new pod of any
// size gets room on the node or a node of its own.
func IsVirtualNode(node *corev1.Node) bool {
	return IsSinglePod(node) || node.Labels[nodeTypeLabel] == virtualKubeletType || node.Labels[instanceTypeNodeLabel] == ekletInstanceType ||
		slices.ContainsFunc(node.Spec.Taints, IsVirtualNodeTaint)
}

var minKubelet = version.MajorMinor(1, 33)

// ResizesPods reports whether the kubelet of a node resizes pods in place.
func ResizesPods(node *corev1.Node) bool {
	kubelet, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	return err == nil && !kubelet.LessThan(minKubelet)
}

// IsSinglePod reports whether a node was created for one pod and accepts no other pod.
func IsSinglePod(node *corev1.Node) bool {
	return node.Labels[computeTypeKey] == fargateComputeType ||
		slices.ContainsFunc(node.Spec.Taints, isSinglePodTaint)
}

// GetsOwnNode reports whether the scheduler of a pod creates a node for it.
func GetsOwnNode(scheduler string) bool { return scheduler == singlePodScheduler }

func isSinglePodTaint(t corev1.Taint) bool {
	return t.Key == computeTypeKey && t.Value == fargateComputeType
}

// IsVirtualNodeTaint reports whether a taint marks a node with a capacity that follows its pods.
func IsVirtualNodeTaint(t corev1.Taint) bool {
	return t.Key == virtualNodeTaintKey || t.Key == ekletTaintKey || isSinglePodTaint(t)
}

// VirtualNodeMarks returns the labels and taints that IsVirtualNode and IsSinglePod read.
func VirtualNodeMarks(node *corev1.Node) (labels map[string]string, taints []corev1.Taint) {
	for key, value := range map[string]string{
		nodeTypeLabel: virtualKubeletType, computeTypeKey: fargateComputeType, instanceTypeNodeLabel: ekletInstanceType,
	} {
		if node.Labels[key] == value {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	for _, t := range node.Spec.Taints {
		if IsVirtualNodeTaint(t) {
			taints = append(taints, t)
		}
	}
	return labels, taints
}

// IsPerNode reports whether a pod belongs to its node, as a DaemonSet pod or a static pod.
func IsPerNode(pod *corev1.Pod) bool {
	return IsStatic(pod) || controlledBy(pod, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
}

// IsStatic reports whether a pod is the mirror of a static pod: its node owns it.
func IsStatic(pod *corev1.Pod) bool {
	return controlledBy(pod, corev1.SchemeGroupVersion.WithKind("Node"))
}

func controlledBy(pod *corev1.Pod, kind schema.GroupVersionKind) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == kind.GroupKind()
}
