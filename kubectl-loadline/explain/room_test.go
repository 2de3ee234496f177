package explain

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

func TestEvictionRoom_DependsOnNodeAutoscaler(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"karpenter.sh/nodepool": "a"}}}
	require.Contains(t, evictionRoom(t.Context(), fake.NewClientset(node), now), "evictions do not wait for node capacity, because a node autoscaler was detected: label karpenter.sh/nodepool of most nodes")
	require.Contains(t, evictionRoom(t.Context(), fake.NewClientset(), now), "evictions wait")
	hidden := fake.NewClientset()
	hidden.PrependReactor("list", "nodes", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("hidden") })
	require.Empty(t, evictionRoom(t.Context(), hidden, now))
}
