package actuate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

// PodDisruptionBudgets reject evictions with a Retry-After header. Ten waits of ten seconds would
// delay all other changes.
func TestCluster_IgnoresRetryAfter(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(s.Close)
	clients, err := client.New(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	c := &Cluster{Kube: clients.Kube, Events: record.NewFakeRecorder(9), Resizes: NewLimiter(0, 0), Evictions: NewLimiter(0, 0)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	change := func(restarts bool) Change {
		return Change{Object: pod, Autoscaler: snapshot.NewVPA(&vpav1.VerticalPodAutoscaler{}, &convert.LimitRanges{}), Action: disruption.Action{
			Subject: disruption.Subject{Namespace: "shop", VPA: "v", Pod: "web", UID: "1"}, Restarts: restarts,
			Containers: []policy.ContainerTarget{{Name: "app", Requests: resources.NewList(200, 200<<20)}}}}
	}
	for _, tc := range []struct {
		name string
		do   func(context.Context) error
	}{
		{name: "evict", do: func(ctx context.Context) error { return c.Evict(ctx, change(false)) }},
		{name: "resize", do: func(ctx context.Context) error { _, err := c.Resize(ctx, change(false)); return err }},
		{name: "restart", do: func(ctx context.Context) error { _, err := c.Resize(ctx, change(true)); return err }},
		{name: "unboost", do: func(ctx context.Context) error { return c.RemoveBoost(ctx, change(false)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked.Store(0)
			began := time.Now()
			require.Error(t, tc.do(t.Context()))
			require.EqualValues(t, 1, asked.Load())
			require.Less(t, time.Since(began), 5*time.Second)
		})
	}
}
