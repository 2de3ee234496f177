package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

func TestASearchEndsAndLeavesNothingBehind(t *testing.T) {
	q, pod := NewBoostQueue(BoostConfig{}), cache.NewObjectName("shop", "web")
	var all time.Duration
	for range searches {
		pause := q.search(pod)
		require.Positive(t, pause)
		all += pause
	}
	require.Equal(t, 3100*time.Millisecond, all)
	require.Zero(t, q.search(pod), "there is none")
	require.Empty(t, q.without)
	require.Equal(t, firstPause, q.search(pod), "another search begins anew")
	q.found(pod)
	require.Empty(t, q.without)
}
