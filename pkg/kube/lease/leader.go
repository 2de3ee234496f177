// Package lease is about the two kinds of Lease objects that the programs use.
//
// Lead runs work only while this process holds a leader Lease, so that of several replicas one works. Beat writes, and
// Pulse reads, the heartbeat of the admission controller: the updater evicts no pod while nobody would give the new one
// its resources.
//
// The heartbeat says that a process is alive, not more; whether a webhook is
// reachable is for the admission controller to find out before it beats.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
)

// ErrStopRequested is the cause of the end of work's context where it ended because that of Lead did, while the Lease
// was held: only then the last words of work cannot contradict another replica.
var ErrStopRequested = errors.New("stop requested")

// until returns a context that also ends with ctx, and then has the cause ErrStopRequested.
func until(ctx, leading context.Context) (context.Context, func()) {
	working, stop := context.WithCancelCause(leading)
	unbind := context.AfterFunc(ctx, func() { stop(ErrStopRequested) })
	return working, func() { unbind(); stop(nil) }
}

// Lead runs work while this process holds the Lease that e describes, or simply runs it when election is off. The
// context of work ends when ctx ends, with the cause ErrStopRequested, or when the Lease is lost; a lost Lease is an
// error, because the process should end then. When ctx ends the Lease is released, but only after work has returned, so
// that two replicas never work at once. Check with the context of work reports whether it may still act.
func Lead(ctx context.Context, env process.Environment, kube kubernetes.Interface, e flags.Election, work func(context.Context) error) error {
	if !e.Enabled {
		working, stop := until(ctx, context.WithoutCancel(ctx))
		defer stop()
		return work(working)
	}
	host, err := env.Hostname()
	if err != nil {
		return fmt.Errorf("take the lease %s/%s: %w", e.Namespace, e.Name, err)
	}
	identity := host + "_" + string(uuid.NewUUID())

	// The elector outlives ctx: it must hold the Lease until work has ended.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var begun atomic.Bool // work has, or must not any more
	ended := make(chan error, 1)
	own := &term{limit: e.RenewDeadline, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		Client:     kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            own,
		LeaseDuration:   e.LeaseDuration,
		RenewDeadline:   e.RenewDeadline,
		RetryPeriod:     e.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				if begun.Swap(true) {
					return
				}
				working, stop := until(ctx, context.WithValue(leading, termKey{}, own))
				defer stop()
				ended <- work(working)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(id string) {
				klog.FromContext(ctx).V(1).Info("Leader", "lease", klog.KRef(e.Namespace, e.Name), "identity", id, "self", id == identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("take the lease %s/%s: %w", e.Namespace, e.Name, err)
	}
	electorEnded := make(chan struct{})
	go func() {
		defer close(electorEnded)
		elector.Run(holding)
	}()
	select {
	case <-electorEnded: // not by us, so the Lease is lost
		return fmt.Errorf("lost the lease %s/%s: another replica may work now, so this one ends", e.Namespace, e.Name)
	case err = <-ended:
	case <-ctx.Done():
		if begun.Swap(true) {
			err = <-ended
		}
	}
	release()
	<-electorEnded
	return err
}

// Holder returns who holds the Lease of an election at now, for a process that takes no part in it; empty: nobody does.
// Who has not renewed it for its duration, by the clock of the holder, does not hold it any more.
func Holder(ctx context.Context, kube kubernetes.Interface, e flags.Election, now time.Time) (string, error) {
	lease, err := kube.CoordinationV1().Leases(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the Lease %s/%s: %w", e.Namespace, e.Name, err)
	case lease.Spec.HolderIdentity == nil || lease.Spec.RenewTime == nil:
		return "", nil
	}
	lasts := e.LeaseDuration
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		lasts = time.Duration(*seconds) * time.Second
	}
	if !now.Before(lease.Spec.RenewTime.Add(lasts)) {
		return "", nil
	}
	return *lease.Spec.HolderIdentity, nil
}

// Pulse judges a heartbeat by its beats: it is alive while the Lease changes. Only the clock of the reader counts, so
// that a writer whose clock is wrong neither seems dead nor lives on after its end. It is not safe for concurrent use.
type Pulse struct {
	Beat    *Beat
	Timeout time.Duration // the longest time between two beats

	last   renewal
	since  time.Time // when last was first seen
	looked time.Time // when it was read last; zero: never
}

// renewal is what changes with each renewal.
type renewal struct {
	uid     string
	renewed metav1.MicroTime
}

// Alive reads the Lease at now and reports whether it beats: a change of it was first seen less than Timeout ago. What
// is seen at the first look, or after more than twice Timeout without one, counts if the Lease itself says that it is
// younger than Timeout. A Lease that its writer made stale never counts. A Lease that is missing or cannot be read is
// an error.
func (p *Pulse) Alive(ctx context.Context, now time.Time) (bool, error) {
	lease, err := p.Beat.read(ctx)
	if err != nil {
		return false, err
	}
	seen := renewal{uid: string(lease.UID)}
	if lease.Spec.RenewTime != nil {
		seen.renewed = *lease.Spec.RenewTime
	}
	blind := p.looked.IsZero() || now.Sub(p.looked) > 2*p.Timeout
	if p.looked.IsZero() || !same(seen, p.last) {
		p.last, p.since = seen, now
		if blind && !fresh(lease, p.Timeout, now) || expired(lease) {
			p.since = now.Add(-p.Timeout)
		}
	}
	p.looked = now
	return now.Sub(p.since) < p.Timeout, nil
}

func same(a, b renewal) bool { return a.uid == b.uid && a.renewed.Equal(&b.renewed) }

// expired reports whether the writer made its Lease stale; see Expire.
func expired(lease *coordinationv1.Lease) bool {
	return lease.Spec.RenewTime != nil && lease.Spec.RenewTime.Unix() <= 0
}

// fresh reports whether a Lease was created or renewed less than timeout before now, by the clocks of those who did it.
func fresh(lease *coordinationv1.Lease, timeout time.Duration, now time.Time) bool {
	if lease.CreationTimestamp.Add(timeout).After(now) {
		return true
	}
	renewed := lease.Spec.RenewTime
	return renewed != nil && renewed.Add(timeout).After(now)
}

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

// Check returns ErrNotRenewed if the work that Lead has begun with ctx must not act now. A process that was frozen, as
// by SIGSTOP or a paused virtual machine, learns from it that it may have a successor, before its elector notices.
// Loops call it before each iteration and each queue item, and package client before each write. It is nil for a
// context that does not come from Lead, or while election is off.
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
