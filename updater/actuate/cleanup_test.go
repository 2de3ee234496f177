package actuate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

// Users can add share and boost annotations to many pods. Removing them must leave budget for other
// writes.
func TestWriteLimit_MarkRemovalHasSeparateBudget(t *testing.T) {
	const pods = 100
	kube := fake.NewClientset()
	for i := range pods {
		require.NoError(t, kube.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(i)}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}))
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Annotations: map[string]string{"large": strings.Repeat("x", 8<<10)}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(pod)
	}))
	t.Cleanup(server.Close)
	change := Change{Object: pod, Autoscaler: snapshot.NewVPA(&vpav1.VerticalPodAutoscaler{}, &convert.LimitRanges{}), Action: disruption.Action{
		Subject: disruption.Subject{Namespace: "shop", VPA: "v", Pod: "web", UID: "1"}}, RemovedBoosts: []string{"app"}}
	for name, remove := range map[string]func(c *Cluster) error{
		"share": func(c *Cluster) error { return c.RemoveShare(t.Context(), pod) },
		"boost": func(c *Cluster) error { return c.RemoveBoost(t.Context(), change) },
	} {
		t.Run(name, func(t *testing.T) {
			limiter := client.NewWriteLimiter(client.WriteLimit{Burst: 64 << 10, Refill: 64 << 10, Window: time.Hour, PerPod: 64 << 10}, prometheus.NewRegistry())
			factory := informers.NewSharedInformerFactory(kube, 0)
			require.NoError(t, limiter.WatchPods(factory.Core().V1().Pods().Informer()))
			factory.Start(t.Context().Done())
			require.Eventually(t, func() bool { return limiter.RunningPods("shop") == pods }, time.Minute, time.Millisecond)
			config := &rest.Config{Host: server.URL, QPS: -1}
			limiter.Limit(config)
			clients, err := client.New(config)
			require.NoError(t, err)
			c := &Cluster{Kube: clients.Kube, Events: record.NewFakeRecorder(pods), Resizes: NewLimiter(0, 0), Evictions: NewLimiter(0, 0)}
			removed := 0
			for err = remove(c); err == nil && removed < pods; err = remove(c) {
				removed++
			}
			require.True(t, client.IsWriteLimited(err), "after %d removals: %v", removed, err)
			require.Positive(t, removed)
			require.NoError(t, c.Note(t.Context(), pod, rollout.Change{At: time.Unix(1e9, 0)}), "other writes go on")
		})
	}
}
