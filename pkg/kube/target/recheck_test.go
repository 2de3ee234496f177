package target

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The selector of a target without pods may have changed and is read before the next regular
// refresh.
func TestRecheck_ReadsSelectorSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var color atomic.Value
		color.Store("color=blue")
		var calls atomic.Int32
		c := newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
			calls.Add(1)
			return scale(color.Load().(string)), nil
		})
		ctx, stop := context.WithCancel(t.Context())
		go c.run(ctx, nil)
		r, ref := &Resolver{scales: c}, &autoscalingv1.CrossVersionObjectReference{APIVersion: "example.org/v1", Kind: "Release", Name: "cart"}
		key := RefKey("ns", ref)
		r.Recheck("ns", ref)
		r.Recheck("ns", nil)
		_, err := c.get(ctx, key)
		require.NoError(t, err)
		color.Store("color=green")
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, calls.Load())
		for range 100 { // all of them cause one request
			r.Recheck("ns", ref)
		}
		time.Sleep(scaleLoop)
		synctest.Wait()
		require.EqualValues(t, 2, calls.Load())
		got, err := c.get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, "color=green", got.selector)
		stop()
		synctest.Wait()
	})
}
