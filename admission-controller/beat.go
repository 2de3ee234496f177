package main

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/lease"
)

// beater writes the heartbeat Lease, but only while the webhook answers its own
// probe: the updater evicts pods as long as the heartbeat is fresh.
type beater struct {
	lease *lease.Beat
	probe func(ctx context.Context) error
	alive func() // told after each probe that was answered
}

// expireTime is how long the end of the program may be held up by the Lease.
const expireTime = 3 * time.Second

// Run beats until ctx ends; then it makes the Lease stale, so that nothing is
// evicted in the minute that follows.
func (b *beater) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	tick := time.NewTicker(b.lease.Interval)
	defer tick.Stop()
	for wrote := false; ; {
		if err := b.once(ctx); err == nil {
			wrote = true
		} else if ctx.Err() == nil {
			log.Error(err, "No heartbeat: the updater will not evict pods")
		}
		select {
		case <-ctx.Done():
			if !wrote {
				return nil
			}
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), expireTime)
			defer cancel()
			return b.lease.Expire(ending)
		case <-tick.C:
		}
	}
}

func (b *beater) once(ctx context.Context) error {
	if err := b.probe(ctx); err != nil {
		return err
	}
	b.alive()
	return b.lease.Write(ctx, time.Now())
}
