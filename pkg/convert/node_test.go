package convert

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFollowsPods_ReadsLabelsAndTaints(t *testing.T) {
	for _, tc := range []struct {
		name         string
		labels       map[string]string
		taint        corev1.Taint
		many, single bool
	}{
		{name: "ordinary node", labels: map[string]string{"type": "worker"}, taint: corev1.Taint{Key: "dedicated"}},
		{name: "virtual node", labels: map[string]string{"type": "virtual-kubelet"}, many: true},
		{name: "taint of a virtual node", taint: corev1.Taint{Key: "virtual-kubelet.io/provider", Value: "example"}, many: true},
		{name: "node of one pod", labels: map[string]string{"eks.amazonaws.com/compute-type": "fargate"}, many: true, single: true},
		{name: "taint of a node of one pod", taint: corev1.Taint{Key: "eks.amazonaws.com/compute-type", Value: "fargate"}, many: true, single: true},
		{name: "another compute type", labels: map[string]string{"eks.amazonaws.com/compute-type": "ec2"}, taint: corev1.Taint{Key: "eks.amazonaws.com/compute-type", Value: "ec2"}},
		{name: "another virtual node", labels: map[string]string{"node.kubernetes.io/instance-type": "eklet"}, many: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{tc.taint}}}
			require.Equal(t, tc.many, FollowsPods(node))
			require.Equal(t, tc.single, FollowsPod(node))
			labels, taints := FollowsPodsSigns(node)
			kept := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
			require.Equal(t, tc.many, FollowsPods(kept))
			require.Equal(t, tc.single, FollowsPod(kept))
		})
	}
}
