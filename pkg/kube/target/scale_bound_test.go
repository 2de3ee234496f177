package target

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Whoever may create pods can name owners that do not exist, each of them once.
func TestOwnersThatDoNotExistAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScaleCache(func(_ context.Context, namespace string, _ schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
			if namespace == "real" {
				return &autoscalingv1.Scale{}, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "rollouts"}, name)
		})
		ask := func(namespace string, i int) {
			_, _ = c.get(t.Context(), Key{Namespace: namespace, Group: "argoproj.io", Kind: "Rollout", Name: fmt.Sprint(i)})
		}
		c.mostFailed = mostFailedOfReviews
		for i := range 3 * mostFailedOfReviews {
			ask("greedy", i)
			ask("real", i)
			time.Sleep(time.Millisecond)
		}
		ask("shop", 0)
		c.refresh(t.Context())
		kept := map[string]int{}
		for key := range c.entries {
			kept[key.Namespace]++
		}
		require.Equal(t, map[string]int{"greedy": mostFailedOfReviews, "real": 3 * mostFailedOfReviews, "shop": 1}, kept)
		require.Contains(t, c.entries, Key{Namespace: "greedy", Group: "argoproj.io", Kind: "Rollout", Name: fmt.Sprint(3*mostFailedOfReviews - 1)}, "the newest stay")
	})
}

// Whoever may create VPAs in a namespace can give thousands of them targets that do not exist: each
// pass of an updater asks for all of them, and the API server is asked for one at longer and longer
// intervals.
func TestTargetsThatDoNotExistAreNotAskedForInEachPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets = 1500
		var requests atomic.Int64
		r := &Resolver{scales: newScaleCache(func(_ context.Context, _ string, _ schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
			requests.Add(1)
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "rollouts"}, name)
		})}
		r.scale = r.scales.get
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.Run(ctx, nil)
		for range 2 * 60 {
			for i := range targets {
				_, err := r.Selector(ctx, "greedy", &autoscalingv1.CrossVersionObjectReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: fmt.Sprint(i)})
				require.ErrorContains(t, err, "not found")
			}
			time.Sleep(time.Minute)
		}
		// After 15 s, 30 s, 1 min, 2 min, 4 min, 8 min, 16 min, 32 min, and each hour.
		require.LessOrEqual(t, requests.Load(), int64(10*targets))
	})
}
