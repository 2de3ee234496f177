package actuate

import (
	"context"
	"testing"
	"testing/synctest"
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
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

// An unresponsive API server delays other namespaces by at most the limit of the turn and its last
// request. Waits for a rate limit do not count.
func TestCluster_TurnBoundsRequestsOfChange(t *testing.T) {
	const limit = 4 * time.Second
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Annotations: map[string]string{convert.BackoffAnnotation: ""}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}
	change := Change{Object: pod, Autoscaler: snapshot.NewVPA(&vpav1.VerticalPodAutoscaler{}, &convert.LimitRanges{}), Action: disruption.Action{
		Subject:    disruption.Subject{Namespace: "shop", VPA: "v", Pod: "web", UID: "1"},
		Containers: []policy.ContainerTarget{{Name: "app", Requests: resources.NewList(200, 200<<20)}}}}
	observed, restarts, shares := change, change, change
	observed.Observed, restarts.Restarts, shares.Mark = true, true, &sharing.Mark{}
	resize := func(c Change) func(context.Context, *Cluster) error {
		return func(ctx context.Context, cluster *Cluster) error { _, err := cluster.Resize(ctx, c); return err }
	}
	for _, tc := range []struct {
		name string
		do   func(context.Context, *Cluster) error
	}{
		{"resize", resize(change)},
		{"observed resize", resize(observed)},
		{"restart", resize(restarts)},
		{"share", resize(shares)},
		{"eviction", func(ctx context.Context, c *Cluster) error { return c.Evict(ctx, change) }},
		{"back-off", func(ctx context.Context, c *Cluster) error { return c.RecordBackoff(ctx, pod, disruption.Backoff{}) }},
		{"mark", func(ctx context.Context, c *Cluster) error { return c.MarkShare(ctx, pod, sharing.Mark{}) }},
		{"end of a share", func(ctx context.Context, c *Cluster) error { return c.RemoveShare(ctx, pod) }},
		{"note", func(ctx context.Context, c *Cluster) error { return c.Note(ctx, pod, rollout.Change{}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := new(hangingTransport)
				clients, err := client.New(&rest.Config{Host: "http://api.example", Transport: server})
				require.NoError(t, err)
				c := &Cluster{Kube: clients.Kube, Events: record.NewFakeRecorder(9), Resizes: NewLimiter(0.1, 1), Evictions: NewLimiter(0.1, 1)}
				c.Resizes.Allow()
				c.Evictions.Allow()
				turn := fairwork.Turn(t.Context(), limit)
				require.Error(t, tc.do(turn, c))
				require.Positive(t, server.requests.Load())
				require.LessOrEqual(t, fairwork.Used(turn), limit+3*time.Second, "what has begun is finished")
			})
		})
	}
}
