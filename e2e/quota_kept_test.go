package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func memoryQuota(t *testing.T, w harness.Workload, hard string) {
	t.Helper()
	_, err := cluster.Kube.CoreV1().ResourceQuotas(w.Namespace).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "memory"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsMemory: *quantity(hard)}}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// A pod must not be evicted for more CPU if the quota has no room for the memory of its
// replacement.
func TestQuota_CPUIncreaseKeepsMemory(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "quota-kept", 2)
	startWorkload(t, w)
	createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger)
	awaitSized(t, w, "300m")
	before := awaitRunning(t, w)
	memoryQuota(t, w, "550Mi") // 400Mi are used, and a new pod takes 200Mi
	eventually(t, "the quota counts both pods", func() error {
		q, err := cluster.Kube.CoreV1().ResourceQuotas(w.Namespace).Get(t.Context(), "memory", metav1.GetOptions{})
		if used := q.Status.Used[corev1.ResourceRequestsMemory]; err != nil || used.Cmp(*quantity("400Mi")) != 0 {
			return fmt.Errorf("%s are used: %w", used.String(), err)
		}
		return nil
	})
	during(t, 3*time.Second, func() {}) // until the informers of the programs have it
	setTarget(t, w, resourceList("600m", "200Mi"))
	awaitSkipped(t, w.Namespace, "QuotaFull")
	requireUnchanged(t, w, before)
}
