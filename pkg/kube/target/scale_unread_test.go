package target

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestCacheOnly_BoundsPendingReadsPerNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Resolver{scales: newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
			return &autoscalingv1.Scale{}, nil
		})}
		r.scale = r.scales.get
		wanted := map[Key]int{}
		remembering := r.CacheOnly(func(key Key) { wanted[key]++ })
		rollout := func(namespace string, i int) Key {
			return Key{Namespace: namespace, Group: "argoproj.io", Kind: "Rollout", Name: fmt.Sprint(i)}
		}
		ask := func(key Key) {
			_, _, err := remembering.Topmost(t.Context(), key)
			require.ErrorIs(t, err, ErrNotRead)
		}
		for i := range 1000 {
			ask(rollout("crowded", i))
		}
		require.Len(t, wanted, maxUnread)
		ask(rollout("crowded", 0))
		require.Equal(t, 2, wanted[rollout("crowded", 0)], "it may have been dropped")
		ask(rollout("other", 0))
		require.Equal(t, 1, wanted[rollout("other", 0)])

		_, found, err := r.Topmost(t.Context(), rollout("crowded", 0))
		require.NoError(t, err)
		require.True(t, found)
		_, found, err = remembering.Topmost(t.Context(), rollout("crowded", 0))
		require.NoError(t, err)
		require.True(t, found)
		ask(rollout("crowded", 500))
		ask(rollout("crowded", 501))
		require.Equal(t, 1, wanted[rollout("crowded", 500)], "one was read")
		require.Zero(t, wanted[rollout("crowded", 501)])

		time.Sleep(unreadLifetime)
		ask(rollout("crowded", 501))
		require.Equal(t, 1, wanted[rollout("crowded", 501)], "the others were lost")
		time.Sleep(unreadLifetime)
		r.scales.refresh(t.Context())
		require.Empty(t, r.scales.unread)
	})
}
