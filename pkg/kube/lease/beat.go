package lease

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Heartbeat is a Lease that the admission controller renews.
type Heartbeat struct {
	Client    coordinationclient.LeasesGetter
	Namespace string
	Name      string
	Holder    string        // host name of the writer, only for writing
	Interval  time.Duration // between two writes, only for writing

	cached *coordinationv1.Lease // as last written or read by Write, nil if unknown
}

// Namespace returns the heartbeat namespace: the flag, else $NAMESPACE, else kube-system.
func Namespace(flag string) string { return cmp.Or(flag, os.Getenv("NAMESPACE"), "kube-system") }

// Write renews the Lease at now, and creates it if it is missing. A faster replica counts as
// success. It takes at most one interval.
func (b *Heartbeat) Write(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, b.Interval)
	defer cancel()
	err := retry(ctx, func() error { return b.write(ctx, now) })
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("renew the heartbeat lease %s/%s: %w", b.Namespace, b.Name, err)
	}
	return nil
}

// write first renews the cached Lease, which needs one request while no other replica renews it.
func (b *Heartbeat) write(ctx context.Context, now time.Time) error {
	if b.cached != nil {
		err := b.renew(ctx, b.cached, now)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	leases := b.Client.Leases(b.Namespace)
	lease, err := leases.Get(ctx, b.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(b.Interval / time.Second)
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &b.Holder, LeaseDurationSeconds: &seconds},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if renewed := lease.Spec.RenewTime; b.cached != nil && renewed != nil && now.Sub(renewed.Time).Abs() < b.Interval {
		b.cached = lease
		return nil
	}
	return b.renew(ctx, lease, now)
}

func (b *Heartbeat) renew(ctx context.Context, lease *coordinationv1.Lease, now time.Time) error {
	lease = lease.DeepCopy()
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	lease.Spec.HolderIdentity = &b.Holder
	written, err := b.Client.Leases(b.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
	if err == nil {
		b.cached = written
	}
	return err
}

// Expire makes the Lease stale if this process was the last to renew it, so that readers need not
// wait for its age. The next heartbeat of another replica makes it fresh again.
func (b *Heartbeat) Expire(ctx context.Context) error {
	leases := b.Client.Leases(b.Namespace)
	lease, err := leases.Get(ctx, b.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder != b.Holder {
			return nil
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(0, 0)}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("expire the heartbeat lease %s/%s: %w", b.Namespace, b.Name, err)
	}
	return nil
}

func (b *Heartbeat) read(ctx context.Context) (lease *coordinationv1.Lease, err error) {
	if retryErr := retry(ctx, func() error {
		lease, err = b.Client.Leases(b.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
		return err
	}); retryErr != nil {
		return nil, fmt.Errorf("read the heartbeat lease %s/%s: %w", b.Namespace, b.Name, retryErr)
	}
	return lease, nil
}

var backoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 3, Steps: 3}

// retry makes at most three attempts.
func retry(ctx context.Context, do func() error) (err error) {
	ended := wait.ExponentialBackoffWithContext(ctx, backoff, func(context.Context) (bool, error) {
		err = do()
		return !isTransient(err), nil
	})
	return cmp.Or(err, ended)
}

func isTransient(err error) bool {
	if err == nil {
		return false
	}
	if _, delayed := apierrors.SuggestsClientDelay(err); delayed {
		return true
	}
	return apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) || utilnet.IsTimeout(err)
}
