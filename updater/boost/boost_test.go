package boost

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/updater/podqueue"
)

func TestQueue_SearchEndsAndIsForgotten(t *testing.T) {
	q, pod := New(Config{}), cache.NewObjectName("shop", "web")
	var all time.Duration
	for range maxSearches {
		pause := q.nextSearch(pod)
		require.Positive(t, pause)
		all += pause
	}
	require.Equal(t, 3100*time.Millisecond, all)
	require.Zero(t, q.nextSearch(pod), "there is none")
	require.Empty(t, q.vpaSearches)
	require.Equal(t, podqueue.MinPause, q.nextSearch(pod), "another search begins anew")
	q.forgetSearch(pod)
	require.Empty(t, q.vpaSearches)
}

// Users may write boost annotations on any number of pods.
func TestQueue_ServesNamespacesInTurn(t *testing.T) {
	q := New(Config{})
	for i := range 100 {
		q.queue.Add(cache.NewObjectName("greedy", strconv.Itoa(i)))
	}
	q.queue.Add(cache.NewObjectName("shop", "web"))
	q.queue.Get()
	served, _ := q.queue.Get()
	require.Equal(t, "shop/web", served.String())
}
