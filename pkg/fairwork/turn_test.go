package fairwork

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTurn_LimitsAllRequestsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		request := func(ctx context.Context) time.Duration {
			began := time.Now()
			limited, cancel := Limit(ctx, 5*time.Second)
			defer cancel()
			<-limited.Done()
			return time.Since(began)
		}
		require.Equal(t, 5*time.Second, request(t.Context()), "without a turn")
		require.Zero(t, Used(t.Context()))

		turn := Turn(t.Context(), 9*time.Second)
		require.NoError(t, Exclude(turn, func(context.Context) error { time.Sleep(time.Minute); return nil }))
		require.False(t, Shortens(turn, 5*time.Second))
		require.Equal(t, 5*time.Second, request(turn))
		require.True(t, Shortens(turn, 5*time.Second))
		require.Equal(t, 4*time.Second, request(turn))
		require.Equal(t, 9*time.Second, Used(turn))
		require.Equal(t, minRequestTime, request(turn), "what has begun is finished")
		require.Equal(t, minRequestTime, request(context.WithoutCancel(turn)))
	})
}
