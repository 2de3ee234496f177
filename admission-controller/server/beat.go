package server

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/certs"
	"loadline.dev/loadline/pkg/kube/lease"
)

// Beater writes the heartbeat Lease, but only while the webhook answers probes:
// over its own port, and on the way that the API server takes. Where that way is
// known it is probed, and the own port, which decides about the health of the program,
// each two minutes. An answer is good for two heartbeats. The updater evicts pods as long as
// the heartbeat is fresh.
type Beater struct {
	Lease   *lease.Beat
	Server  *Server      // of the own port
	Service ServiceProbe // for the way of the API server
	Health  *Health      // by the answers of the own port
	// Keeper tells why the API server may not call the webhook. An error stops the heartbeat, and no more: another process
	// could not register either, and what was registered before may still serve.
	Keeper *certs.Keeper

	blind    bool      // it was said that no way is known
	own      Prober    // of the own port
	service  Prober    // of the API server
	answered time.Time // when the own port last did
	good     bool      // the answer before the last heartbeat is good for the next, too
}

// selfProbeEvery is how often the own port is probed where the way of the API server is
// probed each time: one that fails is followed by the next with each heartbeat, and the program
// is healthy for five minutes after an answer.
const selfProbeEvery = 2 * time.Minute

// expireTime is how long the end of the program may be held up by the Lease.
const expireTime = 3 * time.Second

// Run beats until ctx ends; then it makes the Lease stale, so that nothing is
// evicted in the minute that follows.
func (b *Beater) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	start, wrote := time.Now(), false
	report := func(err error) {
		switch {
		case err == nil:
			wrote = true
		case ctx.Err() != nil:
		case !wrote && time.Since(start) < StartGrace: // the Service sends nothing before the kubelet found it ready
			log.V(1).Info("No heartbeat yet", "reason", err)
		default:
			log.Error(err, "No heartbeat: the updater will not evict pods")
		}
	}
	// As the keeper of the certificate waits, which begins at the same time and has the same
	// interval: what wakes a program at rest costs more than what it does then.
	_ = wait.PollUntilContextCancel(ctx, b.Lease.Interval, true, func(ctx context.Context) (bool, error) {
		report(b.once(ctx))
		return false, nil
	})
	if !wrote {
		return nil
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), expireTime)
	defer cancel()
	return b.Lease.Expire(ending)
}

func (b *Beater) once(ctx context.Context) error {
	if b.good = !b.good; b.good {
		if err := b.probe(ctx); err != nil {
			b.good = false
			return err
		}
	}
	if err := b.Keeper.Registered(); err != nil {
		return err
	}
	return b.Lease.Write(ctx, time.Now())
}

func (b *Beater) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.Lease.Interval)
	defer cancel()
	b.own.Environment, b.service.Environment = b.Service.Environment, b.Service.Environment
	trusted := b.Keeper.Holder.Trusted()
	service, known := b.Service.Target(ctx, trusted)
	if now := time.Now(); !known || !now.Before(b.answered.Add(selfProbeEvery)) {
		own, err := b.Server.SelfProbe(b.Service.Host, trusted)
		if err == nil {
			err = b.own.Probe(ctx, own, now)
		}
		if err != nil {
			b.answered = time.Time{}
			return err
		}
		b.answered = now
		b.Health.Alive()
	}
	if known {
		return b.service.Probe(ctx, service, time.Now())
	}
	if !b.blind {
		klog.FromContext(ctx).Info("The way of the API server to the webhook is not known here, so only the own port is probed before each heartbeat", "host", service.Host)
	}
	b.blind = true
	return nil
}
