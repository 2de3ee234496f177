// Package lease handles leader election and the heartbeat of the admission controller with Lease
// objects.
//
// Lead runs work only while this process holds the leader Lease, so that only one of several
// replicas is active. The admission controller writes a Heartbeat, and the updater checks it with a
// Monitor. The updater evicts no pod while the admission controller is down, because the new pod
// would not get its resources.
//
// The heartbeat only proves that a process is alive. The admission controller checks that its
// webhook is reachable before it renews the Lease.
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

// ErrStopRequested is the cancellation cause of work if the context of Lead ended while the Lease
// was held. Only then can final writes of work not conflict with another replica.
var ErrStopRequested = errors.New("stop requested")

func withStopCause(ctx, leading context.Context) (context.Context, func()) {
	working, stop := context.WithCancelCause(leading)
	unbind := context.AfterFunc(ctx, func() { stop(ErrStopRequested) })
	return working, func() { unbind(); stop(nil) }
}

// Lead runs work while this process holds the Lease of e, or immediately if election is off. The
// context of work ends when ctx ends, with the cause ErrStopRequested, or when the Lease is lost. A
// lost Lease is an error, because the process must then exit. When ctx ends, the Lease is released
// after work has returned, so that two replicas never work at once. Check with the context of work
// reports whether it may still act.
func Lead(ctx context.Context, env process.Environment, kube kubernetes.Interface, e flags.Election, work func(context.Context) error) error {
	if !e.Enabled {
		working, stop := withStopCause(ctx, context.WithoutCancel(ctx))
		defer stop()
		return work(working)
	}
	host, err := env.Hostname()
	if err != nil {
		return fmt.Errorf("take the lease %s/%s: %w", e.Namespace, e.Name, err)
	}
	identity := host + "_" + string(uuid.NewUUID())

	// The elector outlives ctx, because it must hold the Lease until work has ended.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var begun atomic.Bool // work has begun, or must not begin any more
	ended := make(chan error, 1)
	leaseTerm := &term{limit: e.RenewDeadline, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		Client:     kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            leaseTerm,
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
				working, stop := withStopCause(ctx, context.WithValue(leading, termKey{}, leaseTerm))
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
	case <-electorEnded: // not by this function, so the Lease is lost
		return fmt.Errorf("lost the lease %s/%s: stopping, because another replica may be active", e.Namespace, e.Name)
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

// Holder returns the Lease holder of an election at now, for other processes, empty without one. A
// holder that has not renewed the Lease for its duration, by its own clock, does not count.
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
	duration := e.LeaseDuration
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		duration = time.Duration(*seconds) * time.Second
	}
	if !now.Before(lease.Spec.RenewTime.Add(duration)) {
		return "", nil
	}
	return *lease.Spec.HolderIdentity, nil
}

// Monitor considers a heartbeat alive while its Lease changes. Only the clock of the reader counts,
// so that a wrong clock of the writer has no effect. It is not safe for concurrent use.
type Monitor struct {
	Heartbeat *Heartbeat
	Timeout   time.Duration // maximum time between two heartbeats

	last     renewal
	since    time.Time
	lastRead time.Time // zero if never
}

type renewal struct {
	uid     string
	renewed metav1.MicroTime
}

// Alive reads the Lease at now and reports whether a change of it was first seen less than Timeout
// ago. On the first read, or after a gap of more than twice Timeout, the Lease counts if its own
// times are younger than Timeout. A Lease that its writer expired never counts. A missing or
// unreadable Lease is an error.
func (p *Monitor) Alive(ctx context.Context, now time.Time) (bool, error) {
	lease, err := p.Heartbeat.read(ctx)
	if err != nil {
		return false, err
	}
	seen := renewal{uid: string(lease.UID)}
	if lease.Spec.RenewTime != nil {
		seen.renewed = *lease.Spec.RenewTime
	}
	blind := p.lastRead.IsZero() || now.Sub(p.lastRead) > 2*p.Timeout
	if p.lastRead.IsZero() || !same(seen, p.last) {
		p.last, p.since = seen, now
		if blind && !fresh(lease, p.Timeout, now) || expired(lease) {
			p.since = now.Add(-p.Timeout)
		}
	}
	p.lastRead = now
	return now.Sub(p.since) < p.Timeout, nil
}

func same(a, b renewal) bool { return a.uid == b.uid && a.renewed.Equal(&b.renewed) }

func expired(lease *coordinationv1.Lease) bool {
	return lease.Spec.RenewTime != nil && lease.Spec.RenewTime.Unix() <= 0
}

// fresh uses the clocks of the API server and the writer.
func fresh(lease *coordinationv1.Lease, timeout time.Duration, now time.Time) bool {
	if lease.CreationTimestamp.Add(timeout).After(now) {
		return true
	}
	renewed := lease.Spec.RenewTime
	return renewed != nil && renewed.Add(timeout).After(now)
}

// ErrNotRenewed means that the leader Lease was not renewed in time, so another replica may lead.
var ErrNotRenewed = errors.New("the leader lease was not renewed in time, so another replica may lead")

// term limits how long to act after the last renewal of the Lease. It is safe for concurrent use.
type term struct {
	resourcelock.Interface

	limit time.Duration // shorter than the duration of the Lease

	mu      sync.Mutex
	renewed time.Time // start of the last successful renewal, zero if never
}

type termKey struct{}

// Check returns ErrNotRenewed if the work that Lead started with ctx must not act now, even if the
// process was frozen and its elector has not noticed yet. Loops call it before each iteration and
// queue item, and package client before each write. It returns nil for other contexts, and while
// election is off.
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
// machine is paused, and the wall clock may be adjusted, so the larger age counts.
func (t *term) age(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(now.Sub(t.renewed), now.Round(0).Sub(t.renewed.Round(0)))
}

// Create acquires the Lease.
func (t *term) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.renew(r, func() error { return t.Interface.Create(ctx, r) })
}

// Update acquires, renews or releases the Lease.
func (t *term) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.renew(r, func() error { return t.Interface.Update(ctx, r) })
}

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
