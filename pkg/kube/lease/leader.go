// Package lease is about the two kinds of Lease objects that the programs use.
//
// Lead runs work only while this process holds a leader Lease, so that of
// several replicas one works. Beat writes, and Pulse reads, the heartbeat of the
// admission controller: the updater evicts no pod while nobody would give the
// new one its resources.
//
// The heartbeat says that a process is alive, not more; whether a webhook is
// reachable is for the admission controller to find out before it beats.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
)

// ErrStopRequested is the cause of the end of work's context where it ended because that
// of Lead did, while the Lease was held: only then the last words of work cannot
// contradict another replica.
var ErrStopRequested = errors.New("stop requested")

// until returns a context that also ends with ctx, and then has the cause ErrStopRequested.
func until(ctx, leading context.Context) (context.Context, func()) {
	working, stop := context.WithCancelCause(leading)
	unbind := context.AfterFunc(ctx, func() { stop(ErrStopRequested) })
	return working, func() { unbind(); stop(nil) }
}

// Lead runs work while this process holds the Lease that e describes, or simply
// runs it when election is off. The context of work ends when ctx ends, with the
// cause ErrStopRequested, or when the Lease is lost; a lost Lease is an error, because the
// process should end then.
// When ctx ends the Lease is released, but only after work has returned, so
// that two replicas never work at once. Check with the context of work reports whether it may
// still act.
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
