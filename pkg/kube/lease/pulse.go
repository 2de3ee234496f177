package lease

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pulse judges a heartbeat by its beats: it is alive while the Lease changes.
// Only the clock of the reader counts, so that a writer whose clock is wrong
// neither seems dead nor lives on after its end. It is not safe for concurrent
// use.
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

// Alive reads the Lease at now and reports whether it beats: a change of it was
// first seen less than Timeout ago. What is seen at the first look, or after more
// than twice Timeout without one, counts if the Lease itself says that it is
// younger than Timeout. A Lease that its writer made stale never counts. A Lease
// that is missing or cannot be read is an error.
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

// fresh reports whether a Lease was created or renewed less than timeout before
// now, by the clocks of those who did it.
func fresh(lease *coordinationv1.Lease, timeout time.Duration, now time.Time) bool {
	if lease.CreationTimestamp.Add(timeout).After(now) {
		return true
	}
	renewed := lease.Spec.RenewTime
	return renewed != nil && renewed.Add(timeout).After(now)
}
