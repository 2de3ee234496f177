package fairwork

import (
	"context"
	"time"
)

// minRequestTime is the minimum time limit of a request in a turn, so that a change that has begun can
// be finished.
const minRequestTime = 3 * time.Second

type turnKey struct{}

// turn is the time that one namespace may use while others wait.
type turn struct {
	began    time.Time
	limit    time.Duration
	excluded time.Duration
}

// Turn returns a context that starts a turn of one namespace. All its requests with a context from
// Limit together take at most limit, but each one gets at least minRequestTime. Goroutines must not
// share a turn.
func Turn(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, turnKey{}, &turn{began: time.Now(), limit: limit})
}

// Limit returns a context for a request with a timeout of usual, or less if the turn ends earlier.
func Limit(ctx context.Context, usual time.Duration) (context.Context, context.CancelFunc) {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		usual = min(usual, max(t.limit-t.used(), minRequestTime))
	}
	return context.WithTimeout(ctx, usual)
}

// Shortens reports whether Limit would give a request less than its default limit.
func Shortens(ctx context.Context, usual time.Duration) bool {
	t, ok := ctx.Value(turnKey{}).(*turn)
	return ok && t.limit-t.used() < usual && minRequestTime < usual
}

// Exclude calls wait and does not count its time as part of the turn: rate limits are common to all
// namespaces.
func Exclude(ctx context.Context, wait func(context.Context) error) error {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		began := time.Now()
		defer func() { t.excluded += time.Since(began) }()
	}
	return wait(ctx)
}

// Used returns the time that the turn of a context has used; 0: there is no turn.
func Used(ctx context.Context) time.Duration {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		return t.used()
	}
	return 0
}

func (t *turn) used() time.Duration { return time.Since(t.began) - t.excluded }
