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
	for name, c := range map[string]struct {
		status *corev1.ConfigMap
		err    error
		labels []string // one for each node
		served string
		want   string
		failed bool
	}{
		"nothing":                                  {},
		"a fresh status":                           {status: autoscalerSays("2026-01-02 11:59:50.123456789 +0000 UTC"), want: reported},
		"a status in another zone":                 {status: autoscalerSays("2026-01-02 13:59:50.1 +0200 CEST m=+12.5"), want: reported},
		"a status without a time":                  {status: autoscalerSays(""), want: reported},
		"a status that is left over":               {status: autoscalerSays("2026-01-02 10:59:50 +0000 UTC")},
		"a node of Karpenter":                      {labels: []string{"karpenter.sh/nodepool"}, want: "label karpenter.sh/nodepool of most nodes"},
		"a node of an old Karpenter":               {labels: []string{"karpenter.sh/provisioner-name"}, want: "label karpenter.sh/provisioner-name of most nodes"},
		"most nodes of Karpenter":                  {labels: []string{"", "karpenter.sh/provisioner-name", "karpenter.sh/nodepool"}, want: "label karpenter.sh/nodepool of most nodes"},
		"a node that labels itself":                {labels: []string{"karpenter.sh/nodepool", "", ""}},
		"half of the nodes":                        {labels: []string{"karpenter.sh/nodepool", ""}},
		"a node that labels itself, status hidden": {labels: []string{"eks.amazonaws.com/nodegroup", "", ""}, err: forbidden},
		"NodePools with few nodes":                 {labels: []string{"karpenter.sh/nodepool", "", ""}, served: nodePools, want: "the kind NodePool of Karpenter"},
		"NodePools without a node":                 {served: nodePools, want: "the kind NodePool of Karpenter"},
		"another kind of Karpenter":                {served: "nodeclaims"},
		"a managed pool that is fixed":             {labels: []string{"cloud.google.com/gke-nodepool"}},
		"a managed pool, status hidden":            {labels: []string{"cloud.google.com/gke-nodepool"}, err: forbidden, want: "label cloud.google.com/gke-nodepool of most nodes"},
		"one of EKS, status hidden":                {labels: []string{"eks.amazonaws.com/nodegroup"}, err: forbidden, want: "label eks.amazonaws.com/nodegroup of most nodes"},
		"one of AKS, status hidden":                {labels: []string{"kubernetes.azure.com/agentpool"}, err: forbidden, want: "label kubernetes.azure.com/agentpool of most nodes"},
		"status hidden, and nothing else":          {err: forbidden},
		"not known":                                {err: broken, failed: true},
		"nodes are not known":                      {labels: []string{"broken"}, failed: true},
	} {
		kube := fake.NewClientset()
		if c.status != nil {
			require.NoError(t, kube.Tracker().Add(c.status))
		}
		if c.err != nil {
			kube.PrependReactor("get", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
		}
		if c.served != "" {
			kube.Resources = []*metav1.APIResourceList{{GroupVersion: "karpenter.sh/v1", APIResources: []metav1.APIResource{{Name: c.served}}}}
		}
		sign, err := NodeAutoscaler{Kube: kube}.Find(t.Context(), noon, func(context.Context) (nodes []map[string]string, err error) {
			for _, label := range c.labels {
				if label == "broken" {
					return nil, broken
				}
				nodes = append(nodes, map[string]string{label: "a"})
			}
			return nodes, nil
		})
		require.Equal(t, c.failed, err != nil, name)
		require.Equal(t, c.want, sign, name)
	}
	require.Contains(t, ExplainEvictionRoom(""), "wait for a node with free capacity")
	require.Contains(t, ExplainEvictionRoom("x"), "do not wait for node capacity, because a node autoscaler was detected: x")
}
