package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Source gives what should be served now, knowing which CAs the API server was
// last told. Store.Load is one.
type Source func(ctx context.Context, now time.Time, published []byte) (*Serving, error)

// republish is how often the registration is written again although nothing
// changed, in case somebody damaged it: while it is gone, evicted pods come back
// unchanged and are evicted again. A write that changes nothing costs the API
// server no write of its own.
const republish = time.Minute

// Keeper keeps the serving certificate and the registration of the webhook up to
// date. It is used by one goroutine.
type Keeper struct {
	Source Source
	// Publish tells the API server which CAs to trust. Nil: somebody else
	// registers the webhook.
	Publish func(ctx context.Context, cas []byte) error
	Holder  *Holder
	Expiry  func(time.Time) // told the end of each new certificate

	published   []byte
	publishedAt time.Time
}

// RunOnce loads the certificate and registers the webhook where that is due. An
// error leaves what was there in use.
func (k *Keeper) RunOnce(ctx context.Context, now time.Time) error {
	log := klog.FromContext(ctx)
	before := k.Holder.Current()
	serving, err := k.Source(ctx, now, k.published)
	if err != nil {
		return err
	}
	if !now.Before(serving.NotAfter) {
		err = fmt.Errorf("the serving certificate expired on %s: renew it", serving.NotAfter.Format(time.RFC3339))
	}
	k.Holder.Set(serving)
	if before == nil || !before.Certificate.Leaf.Equal(serving.Certificate.Leaf) {
		if before != nil {
			log.Info("New certificate found, reloading", "expires", serving.NotAfter)
		}
		k.Expiry(serving.NotAfter)
	}
	if k.Publish == nil {
		return err
	}
	changed := !bytes.Equal(k.published, serving.CAs)
	if !changed && now.Before(k.publishedAt.Add(republish)) {
		return err
	}
	if changed && k.published != nil {
		log.Info("New client CA found, reloading and patching webhook")
	}
	if problem := k.Publish(ctx, serving.CAs); problem != nil {
		return errors.Join(err, problem)
	}
	if changed && k.published != nil {
		log.Info("Successfully patched webhook with new client CA")
	}
	k.published, k.publishedAt = serving.CAs, now
	return err
}

// keepInterval is how often the keeper runs.
const keepInterval = 10 * time.Second

// Run calls RunOnce until ctx ends and logs what fails. With once set it only
// repeats until the first success.
func (k *Keeper) Run(ctx context.Context, once bool) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		err := k.RunOnce(ctx, time.Now())
		if err == nil && once {
			return
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Certificate or registration of the webhook needs attention, retrying", "every", keepInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
