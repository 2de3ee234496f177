package disruption

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// The kubelet retries a memory decrease by itself. An eviction would disrupt a working pod and give
// it too little memory.
func TestEviction_WaitsForMemoryInUse(t *testing.T) {
	refused := func(since time.Duration, from, to resources.Amount) *VPA {
		p := small("p0")
		p.Resize, p.ResizeSince = ResizeError, noon.Add(-since)
		c := &p.Containers[0]
		c.Actual.Limits, c.Spec.Limits = resources.NewList(500, from<<20), resources.NewList(500, to<<20)
		return deployment(InPlaceOrRecreate, 2, p, small("p1"))
	}
	first := func(v *VPA) string { return formatPlan(planAtNoon(t, v, defaults()))[0] }
	other := "resize or evict p1: OutOfBounds"
	require.Equal(t, []string{other, "skip p0: ResizeFailed"}, formatPlan(planAtNoon(t, refused(time.Minute, 400, 200), defaults())))
	require.Equal(t, "evict p0: ResizeStuck", first(refused(InProgressTimeout+time.Second, 400, 200)), "not for ever")
	require.Equal(t, "evict p0: ResizeStuck", first(refused(time.Minute, 200, 400)), "the node cannot give memory")
	require.Equal(t, "evict p0: ResizeStuck", first(refused(time.Minute, 200, 200)))
}
