package target

import (
	"context"
	"fmt"
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
		for i := range 3 * mostFailed {
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
		require.Equal(t, map[string]int{"greedy": mostFailed, "real": 3 * mostFailed, "shop": 1}, kept)
		require.Contains(t, c.entries, Key{Namespace: "greedy", Group: "argoproj.io", Kind: "Rollout", Name: fmt.Sprint(3*mostFailed - 1)}, "the newest stay")
	})
}
