package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
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

// A pod is evicted only if the quota has room for its replacement. Otherwise the webhook would
// reduce the replacement to the remaining quota.
func TestQuota_NoEvictionWithoutRoomForReplacement(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "quota-cut", 2)
	cpuQuota(t, w, "460m")
	before := startWorkload(t, w)
	createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger)
	awaitSkipped(t, w.Namespace, "QuotaFull")
	requireUnchanged(t, w, before)
	require.Empty(t, evictionsOf(t, w))
}

func TestQuota_ScopesSelectCountedPods(t *testing.T) {
	parallelTest(t)
	counted, free := newWorkload(t, "quota-scoped", 2), newWorkload(t, "quota-of-others", 2)
	cpuQuota(t, counted, "460m", corev1.ResourceQuotaScopeNotTerminating)
	cpuQuota(t, free, "460m", corev1.ResourceQuotaScopeTerminating)
	before := startWorkload(t, counted)
	startWorkload(t, free)
	createVPAWithTarget(t, counted, vpav1.UpdateModeRecreate, larger)
	createVPAWithTarget(t, free, vpav1.UpdateModeRecreate, larger)
	awaitSkipped(t, counted.Namespace, "QuotaFull")
	requireUnchanged(t, counted, before)
	require.Empty(t, evictionsOf(t, counted))
	awaitSized(t, free, "300m")
}

// The quota is created while the pod terminates, so the webhook has to reduce the replacement. This
// must not lead to repeated evictions.
func TestQuota_PodReducedByWebhookIsEvictedOnce(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "quota-cut-late", 2)
	template := w.Template()
	template.Finalizers = []string{"sim.loadline.dev/held"} // an evicted pod stays until the test removes the finalizer
	_, err := cluster.Kube.AppsV1().StatefulSets(w.Namespace).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: w.Name}, Spec: appsv1.StatefulSetSpec{
		Replicas: &w.Replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}, metav1.CreateOptions{})
	require.NoError(t, err)
	awaitRunning(t, w)
	createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger, withTargetRef("apps/v1", "StatefulSet"))
	var evicted string
	eventually(t, "a pod is evicted", func() error {
		list, err := cluster.Kube.CoreV1().Pods(w.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if pod.DeletionTimestamp != nil {
				evicted = pod.Name
				return nil
			}
		}
		return fmt.Errorf("none is")
	})
	cpuQuota(t, w, "350m")
	eventually(t, "the quota counts the pods", func() error {
		q, err := cluster.Kube.CoreV1().ResourceQuotas(w.Namespace).Get(t.Context(), "cpu", metav1.GetOptions{})
		if used := q.Status.Used["requests.cpu"]; err != nil || used.IsZero() {
			return fmt.Errorf("%s are used: %w", used.String(), err)
		}
		return nil
	})
	during(t, 3*time.Second, func() {}) // until the webhook's informer has it
	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "patch", "pod", evicted, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`))
	awaitSkipped(t, w.Namespace, "BackingOff")
	cut := 0
	for _, pod := range awaitRunning(t, w) {
		if has := pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); has > 100 {
			require.Less(t, has, int64(300), "the quota has no room for that")
			cut++
		}
	}
	require.Equal(t, 1, cut, "the webhook gives the new pod what is left")
	during(t, 20*time.Second, func() {})
	require.Equal(t, 1, strings.Count(evictionsOf(t, w), "Evicted to apply"))
}
