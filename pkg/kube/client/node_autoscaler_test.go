package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func autoscalerSays(at string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status", Annotations: map[string]string{autoscalerUpdated: at}}}
}

func TestNodeAutoscaler_FindsSigns(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, autoscalerStatus, nil)
	broken := errors.New("broken")
	const reported = "ConfigMap kube-system/cluster-autoscaler-status of cluster-autoscaler"
	for _, tc := range []struct {
		name   string
		status *corev1.ConfigMap
		err    error
		labels []string // one for each node
		served string
		want   string
		failed bool
	}{
		{name: "no signs"},
		{name: "fresh status", status: autoscalerSays("2026-01-02 11:59:50.123456789 +0000 UTC"), want: reported},
		{name: "status in another time zone", status: autoscalerSays("2026-01-02 13:59:50.1 +0200 CEST m=+12.5"), want: reported},
		{name: "status without a time", status: autoscalerSays(""), want: reported},
		{name: "stale status", status: autoscalerSays("2026-01-02 10:59:50 +0000 UTC")},
		{name: "Karpenter node", labels: []string{"karpenter.sh/nodepool"}, want: "label karpenter.sh/nodepool of most nodes"},
		{
			name: "node of an old Karpenter", labels: []string{"karpenter.sh/provisioner-name"},
			want: "label karpenter.sh/provisioner-name of most nodes",
		},
		{
			name: "most nodes of Karpenter", labels: []string{"", "karpenter.sh/provisioner-name", "karpenter.sh/nodepool"},
			want: "label karpenter.sh/nodepool of most nodes",
		},
		{name: "label on a minority of nodes", labels: []string{"karpenter.sh/nodepool", "", ""}},
		{name: "label on half of the nodes", labels: []string{"karpenter.sh/nodepool", ""}},
		{
			name: "label on a minority of nodes with a forbidden status", err: forbidden,
			labels: []string{"eks.amazonaws.com/nodegroup", "", ""},
		},
		{
			name: "NodePools with few nodes", labels: []string{"karpenter.sh/nodepool", "", ""}, served: nodePools,
			want: "the kind NodePool of Karpenter",
		},
		{name: "NodePools without a node", served: nodePools, want: "the kind NodePool of Karpenter"},
		{name: "another Karpenter kind", served: "nodeclaims"},
		{name: "managed pool without a status", labels: []string{"cloud.google.com/gke-nodepool"}},
		{
			name: "managed pool with a forbidden status", err: forbidden, labels: []string{"cloud.google.com/gke-nodepool"},
			want: "label cloud.google.com/gke-nodepool of most nodes",
		},
		{
			name: "EKS pool with a forbidden status", err: forbidden, labels: []string{"eks.amazonaws.com/nodegroup"},
			want: "label eks.amazonaws.com/nodegroup of most nodes",
		},
		{
			name: "AKS pool with a forbidden status", err: forbidden, labels: []string{"kubernetes.azure.com/agentpool"},
			want: "label kubernetes.azure.com/agentpool of most nodes",
		},
		{name: "forbidden status alone", err: forbidden},
		{name: "status that cannot be read", err: broken, failed: true},
		{name: "nodes that cannot be read", labels: []string{"broken"}, failed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kube := fake.NewClientset()
			if tc.status != nil {
				require.NoError(t, kube.Tracker().Add(tc.status))
			}
			if tc.err != nil {
				kube.PrependReactor("get", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			}
			if tc.served != "" {
				kube.Resources = []*metav1.APIResourceList{{
					GroupVersion: "karpenter.sh/v1", APIResources: []metav1.APIResource{{Name: tc.served}},
				}}
			}
			sign, err := NodeAutoscaler{Kube: kube}.Find(t.Context(), noon, func(context.Context) (nodes []map[string]string, err error) {
				for _, label := range tc.labels {
					if label == "broken" {
						return nil, broken
					}
					nodes = append(nodes, map[string]string{label: "a"})
				}
				return nodes, nil
			})
			require.Equal(t, tc.failed, err != nil)
			require.Equal(t, tc.want, sign)
		})
	}
	require.Contains(t, ExplainEvictionRoom(""), "wait for a node with free capacity")
	require.Contains(t, ExplainEvictionRoom("x"), "do not wait for node capacity, because a node autoscaler was detected: x")
}
