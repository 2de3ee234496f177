package updater

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

// The role of the reference VPA grants no access to ResourceQuotas, and nodes are optional.
func TestCapacity_ReadsQuotasAndNodesOncePermitted(t *testing.T) {
	kube := fake.NewClientset(&corev1.ResourceQuota{}, node("n1", "4"))
	var allowed atomic.Bool
	for _, resource := range []string{"resourcequotas", "nodes"} {
		kube.PrependReactor("list", resource, func(ktesting.Action) (bool, runtime.Object, error) {
			return !allowed.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
		})
	}
	d := dependencies{metrics: newMetrics(prometheus.NewRegistry()), clients: sameClients(kube, vpafake.NewSimpleClientset())}
	around := startProgram(t, Default(), d, overrides{forbiddenRetry: time.Millisecond, events: &record.FakeRecorder{}}).loop.planner.Capacity
	require.False(t, around.NodeInformer.HasSynced() || around.QuotaInformer.HasSynced())
	allowed.Store(true)
	require.Eventually(t, func() bool { return around.NodeInformer.HasSynced() && around.QuotaInformer.HasSynced() }, time.Minute, time.Millisecond)
}
