package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// What other namespaces may notice of the attacks.
const (
	maxDelay       = 10 * time.Second // of recommendations
	maxAdmission   = 1                // second, of the webhook per pod
	maxMemoryShare = 0.6              // of the memory limit
	maxStored      = 64 << 20         // bytes that the programs write for the namespace of the tenant
)

// TestTenant_StopsNobody runs all attacks at the same time. Meanwhile a workload of another namespace is created again
// and again, and must get its recommendation nearly as fast as before.
func TestTenant_StopsNobody(t *testing.T) {
	require.NoError(t, cluster.CreateNamespace(t.Context(), "victim"))
	var before time.Duration
	for i := range 3 {
		before = max(before, served(t, fmt.Sprintf("before-%d", i)))
	}
	admitted := reviews(t)

	attacks := newTenant(t).attacks()
	ctx, stop := context.WithTimeout(t.Context(), *length)
	defer stop()
	var running sync.WaitGroup
	for _, a := range attacks {
		running.Go(func() { a.run(ctx) })
	}
	memory := map[string]int64{}
	running.Go(func() {
		for ctx.Err() == nil {
			for _, d := range programs {
				if now, _, err := harness.Memory(d.PID()); err == nil {
					memory[d.Name] = max(memory[d.Name], now)
				}
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	var during []time.Duration
	for i := 0; ctx.Err() == nil; i++ {
		during = append(during, served(t, fmt.Sprintf("during-%d", i)))
	}
	stop()
	running.Wait()

	for _, a := range attacks {
		t.Logf("%s: %d times, last error: %v", a.name, a.done.Load(), a.err.Load())
		require.NotZero(t, a.done.Load(), "%s never worked", a.name)
	}
	for _, d := range programs {
		share := float64(memory[d.Name]) / float64(d.MemoryLimit)
		t.Logf("%s: at most %d MB resident, %.0f %% of its limit", d.Name, memory[d.Name]>>20, 100*share)
		require.True(t, d.Running(), "%s ended", d.Name)
		require.LessOrEqual(t, share, maxMemoryShare, "memory of %s", d.Name)
	}
	t.Logf("recommendations: %s before, during the attacks %v", before.Round(time.Second), during)
	for _, d := range during {
		require.LessOrEqual(t, d, before+maxDelay+iteration, "a new workload of another namespace waits for its recommendation")
	}
	after := reviews(t)
	t.Logf("reviews of pods: %d, slower than %d s: %d, failed: %d", after.all-admitted.all, maxAdmission, after.slow-admitted.slow, after.failed-admitted.failed)
	require.Equal(t, admitted.slow, after.slow, "the webhook delayed pods")
	require.Equal(t, admitted.failed, after.failed, "the API server did not reach the webhook")
	stored := written(t)
	t.Logf("written for the tenant: %d KiB", stored>>10)
	require.LessOrEqual(t, stored, maxStored)
}

// served creates a workload with a VPA and returns the time until the VPA has a recommendation.
func served(t *testing.T, name string) time.Duration {
	t.Helper()
	began := time.Now()
	w := harness.Workload{Namespace: "victim", Name: name, Replicas: 2, Containers: []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi"}}, Annotations: harness.Uses("app", "200m", "300Mi")}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate))
	vpas := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace)
	require.Eventually(t, func() bool {
		vpa, err := vpas.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && vpa.Status.Recommendation != nil
	}, 5*time.Minute, 100*time.Millisecond, "recommendation of %s", name)
	took := time.Since(began)
	require.NoError(t, cluster.Kube.AppsV1().Deployments(w.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	require.NoError(t, vpas.Delete(t.Context(), name, metav1.DeleteOptions{}))
	return took
}

// reviewCounts are what the API server counts of its requests to the webhook.
type reviewCounts struct{ all, slow, failed int }

func reviews(t *testing.T) (c reviewCounts) {
	t.Helper()
	text, err := cluster.Kube.(*kubernetes.Clientset).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	fast := 0
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, `name="vpa.k8s.io"`) {
			continue
		}
		value, err := strconv.ParseFloat(strings.Fields(line)[len(strings.Fields(line))-1], 64)
		require.NoError(t, err)
		switch {
		case strings.HasPrefix(line, "apiserver_admission_webhook_admission_duration_seconds_count"):
			c.all += int(value)
		case strings.HasPrefix(line, "apiserver_admission_webhook_admission_duration_seconds_bucket") && strings.Contains(line, `le="1"`):
			fast += int(value)
		case strings.HasPrefix(line, "apiserver_admission_webhook_fail_open_count"):
			c.failed += int(value)
		}
	}
	require.NotZero(t, c.all, "the API server counts no reviews")
	c.slow = c.all - fast
	return c
}

// written returns the size of all objects that the programs write in the namespace of the tenant.
func written(t *testing.T) (size int) {
	t.Helper()
	ctx := t.Context()
	add := func(objects any, err error) {
		require.NoError(t, err)
		text, err := json.Marshal(objects)
		require.NoError(t, err)
		size += len(text)
	}
	add(cluster.VPA.AutoscalingV1().VerticalPodAutoscalerCheckpoints(tenantNamespace).List(ctx, metav1.ListOptions{}))
	add(cluster.VPA.LoadlineV1alpha1().SizingRecords(tenantNamespace).List(ctx, metav1.ListOptions{}))
	vpas, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(tenantNamespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for i := range vpas.Items {
		add(vpas.Items[i].Status, nil)
	}
	events, err := cluster.Kube.CoreV1().Events(tenantNamespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	var ours []corev1.Event
	for i := range events.Items {
		if strings.HasPrefix(events.Items[i].Source.Component, "vpa-") {
			ours = append(ours, events.Items[i])
		}
	}
	add(ours, nil)
	return size
}
