package updater

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

func TestCaches_RefreshScales(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var replicas atomic.Int32
		scale := func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
			return &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas.Add(1)}}, nil
		}
		c, err := newCaches(Default(), &client.Clients{Kube: fake.NewClientset(), VPA: vpafake.NewSimpleClientset()}, nil, overrides{scale: scale})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		require.NoError(t, c.start(ctx))
		read := func() int32 {
			n, known := c.targets.Replicas(ctx, target.Key{Namespace: "shop", Group: "example.com", Kind: "Thing", Name: "web"})
			require.True(t, known)
			return n
		}
		require.EqualValues(t, 1, read())
		require.EqualValues(t, 1, read(), "it is remembered")
		time.Sleep(25 * time.Minute)
		require.Greater(t, read(), int32(1))
		stop()
		c.shutdown()
	})
}
