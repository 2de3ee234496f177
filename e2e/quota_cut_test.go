package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func cpuQuota(t *testing.T, w harness.Workload, hard string, scopes ...corev1.ResourceQuotaScope) {
	t.Helper()
	_, err := cluster.Kube.CoreV1().ResourceQuotas(w.Namespace).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "cpu"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": *quantity(hard)}, Scopes: scopes}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// A pod is evicted only if the quota can hold its successor beside it: the webhook
// would cut that to what is left.
func TestAQuotaThatWouldCutTheNewPodIsNotRunInto(t *testing.T) {
	t.Parallel()
	w := plain(t, "quota-cut", 2)
	cpuQuota(t, w, "460m")
	before := running(t, w)
	advise(t, w, vpav1.UpdateModeRecreate, larger)
	awaitLeftAlone(t, w.Namespace, "QuotaFull")
	unchanged(t, w, before)
	require.Empty(t, evictionsOf(t, w))
}

// Where it comes to a cut all the same, here because the updater leaves quotas
// with such a scope to the API server, nobody is evicted again and again.
func TestAPodThatTheWebhookCutsIsEvictedOnce(t *testing.T) {
	t.Parallel()
	w := plain(t, "quota-cut-scoped", 2)
	cpuQuota(t, w, "350m", corev1.ResourceQuotaScopeNotTerminating)
	running(t, w)
	advise(t, w, vpav1.UpdateModeRecreate, larger)
	awaitLeftAlone(t, w.Namespace, "BackingOff")
	cut := 0
	for _, pod := range awaitRunning(t, w) {
		if has := pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); has > 100 {
			require.Less(t, has, int64(300), "the quota has no room for that")
			cut++
		}
	}
	require.Equal(t, 1, cut, "the webhook gives the new pod what is left")
	during(t, 20*time.Second, func() {})
	require.Equal(t, 1, strings.Count(evictionsOf(t, w), "Evicted so that"))
}
