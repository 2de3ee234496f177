package lease

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/flags"
)

// Lead runs work while this process holds the Lease that e describes, or simply
// runs it when election is off. The context of work ends when ctx ends, with the
// cause ErrTold, or when the Lease is lost; a lost Lease is an error, because the process should end then.
// When ctx ends the Lease is released, but only after work has returned, so
// that two replicas never work at once.
func Lead(ctx context.Context, kube kubernetes.Interface, e flags.Election, work func(context.Context) error) error {
	if !e.Enabled {
		working, stop := until(ctx, context.WithoutCancel(ctx))
		defer stop()
		return work(working)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("take the lease %s/%s: %w", e.Namespace, e.Name, err)
	}
	identity := host + "_" + string(uuid.NewUUID())

	// The elector outlives ctx: it must hold the Lease until work has ended.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	term := &term{work: work, ended: make(chan error, 1)}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  meta(e.Namespace, e.Name),
			Client:     kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   e.LeaseDuration,
		RenewDeadline:   e.RenewDeadline,
		RetryPeriod:     e.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: term.start(ctx),
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
	case err = <-term.ended:
	case <-ctx.Done():
		err = term.wait()
	}
	release()
	<-electorEnded
	return err
}
