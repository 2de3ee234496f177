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

		turn := Turn(t.Context(), 7*time.Second)
		require.NoError(t, Exclude(turn, func(context.Context) error { time.Sleep(time.Minute); return nil }))
		require.Equal(t, 5*time.Second, request(turn))
		require.Equal(t, 2*time.Second, request(turn))
		require.Equal(t, 7*time.Second, Used(turn))
		require.Equal(t, minRequestTime, request(turn), "what has begun is finished")
		require.Equal(t, minRequestTime, request(context.WithoutCancel(turn)))
	})
}
