package convert

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsVirtualNode_ReadsLabelsAndTaints(t *testing.T) {
	for _, tc := range []struct {
		name        string
		labels      map[string]string
		taint       corev1.Taint
		followsPods bool
		singlePod   bool
	}{
		{name: "ordinary node", labels: map[string]string{"type": "worker"}, taint: corev1.Taint{Key: "dedicated"}},
		{name: "virtual node", labels: map[string]string{"type": "virtual-kubelet"}, followsPods: true},
		{name: "taint of a virtual node", taint: corev1.Taint{Key: "virtual-kubelet.io/provider", Value: "example"}, followsPods: true},
		{name: "single-pod node", labels: map[string]string{"eks.amazonaws.com/compute-type": "fargate"}, followsPods: true, singlePod: true},
		{name: "taint of a single-pod node", taint: corev1.Taint{Key: "eks.amazonaws.com/compute-type", Value: "fargate"}, followsPods: true, singlePod: true},
		{name: "another compute type", labels: map[string]string{"eks.amazonaws.com/compute-type": "ec2"},
			taint: corev1.Taint{Key: "eks.amazonaws.com/compute-type", Value: "ec2"}},
		{name: "another virtual node", labels: map[string]string{"node.kubernetes.io/instance-type": "eklet"}, followsPods: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{tc.taint}}}
			require.Equal(t, tc.followsPods, IsVirtualNode(node))
			require.Equal(t, tc.singlePod, IsSinglePod(node))
			labels, taints := VirtualNodeMarks(node)
			kept := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
			require.Equal(t, tc.followsPods, IsVirtualNode(kept))
			require.Equal(t, tc.singlePod, IsSinglePod(kept))
		})
	}
}
