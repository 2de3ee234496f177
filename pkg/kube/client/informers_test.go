package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/testkit"
)

func TestFactory_CachesTrimmedObjects(t *testing.T) {
	c := testkit.Crowd{Pods: 1100, Deployments: 100, Revisions: 11, Nodes: 5}
	for _, tc := range []struct {
		name   string
		server *testkit.CrowdServer
	}{
		{name: "list as a stream", server: &testkit.CrowdServer{Crowd: c}},
		{name: "list of an old server", server: &testkit.CrowdServer{Crowd: c, Old: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clients, err := New(&rest.Config{Host: testkit.ServeCrowd(t, tc.server)})
			require.NoError(t, err)
			f := Factory(clients.Kube, "", time.Hour, "")
			pods, sets := f.Core().V1().Pods(), f.Apps().V1().ReplicaSets().Informer()
			synced := map[string]cache.InformerSynced{"pods": pods.Informer().HasSynced, "sets": sets.HasSynced}
			ctx, stop := context.WithCancel(t.Context())
			f.Start(ctx.Done())
			defer f.Shutdown()
			defer stop()
			require.NoError(t, Sync(ctx, synced))
			if !tc.server.Old {
				require.Zero(t, tc.server.Largest(), "a whole list takes many times the memory of the trimmed objects")
			}
			require.Len(t, pods.Informer().GetStore().ListKeys(), c.Pods)
			require.Len(t, sets.GetStore().ListKeys(), c.Deployments*c.Revisions)
			for _, i := range []int{0, 500, c.Pods - 1} {
				got, err := pods.Lister().Pods(c.Pod(i).Namespace).Get(c.Pod(i).Name)
				require.NoError(t, err)
				alone, err := Trim(c.Pod(i))
				require.NoError(t, err)
				require.True(t, apiequality.Semantic.DeepEqual(alone.(*corev1.Pod), got))
			}
			first, err := pods.Lister().Pods(c.Pod(0).Namespace).Get(c.Pod(0).Name)
			require.NoError(t, err)
			second, err := pods.Lister().Pods(c.Pod(1).Namespace).Get(c.Pod(1).Name)
			require.NoError(t, err)
			require.Same(t, &first.Spec.Containers[0], &second.Spec.Containers[0])
		})
	}
}
