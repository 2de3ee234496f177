package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrNotRenewed is the error of an action that is left undone because the leader Lease was not renewed
// in time: another replica may lead by now.
var ErrNotRenewed = errors.New("the leader lease was not renewed in time, so another replica may lead")

// term is how long this process may act after it has renewed its Lease. It is safe for concurrent use.
type term struct {
	resourcelock.Interface

	limit time.Duration // shorter than the duration of the Lease

	mu      sync.Mutex
	renewed time.Time // when the last request that renewed the Lease was begun; zero: never
}

type termKey struct{}

// Check returns ErrNotRenewed if the work that Lead has begun with ctx must not act now. A process that
// was frozen, as by SIGSTOP or a paused virtual machine, learns from it that it may have a successor,
// before its elector notices. Loops call it before each iteration and each queue item, and package
// client before each write. It is nil for a context that does not come from Lead, or while election is
// off.
func Check(ctx context.Context) error {
	t, leads := ctx.Value(termKey{}).(*term)
	if !leads {
		return nil
	}
	if age := t.age(time.Now()); age > t.limit {
		return fmt.Errorf("%w: the last renewal was %s ago, at most %s is safe", ErrNotRenewed, age.Round(time.Second), t.limit)
	}
	return nil
}

// age returns the time since the last renewal. The monotonic clock may stand still while a virtual
// machine is paused, and the wall clock may be set, so the larger age of the two counts.
func (t *term) age(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(now.Sub(t.renewed), now.Round(0).Sub(t.renewed.Round(0)))
}

// Create takes the Lease.
func (t *term) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.renew(r, func() error { return t.Interface.Create(ctx, r) })
}

// Update takes, renews or releases the Lease.
func (t *term) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.renew(r, func() error { return t.Interface.Update(ctx, r) })
}

// renew notes when a request that renews the Lease was begun, if it succeeds.
func (t *term) renew(r resourcelock.LeaderElectionRecord, write func() error) error {
	began := time.Now()
	if err := write(); err != nil {
		return err
	}
	if r.HolderIdentity == t.Identity() {
		t.mu.Lock()
		t.renewed = began
		t.mu.Unlock()
	}
	return nil
}
