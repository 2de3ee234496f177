// Package certs holds the serving certificate of the webhook and the CAs that the API server must trust.
//
// There are two sources. Store keeps them in a Secret: whichever replica comes first creates it, and before a
// certificate expires the next one is issued, published, and only then used. Files reads mounted files, which somebody
// else renews. Both give a Serving, which is handed to connections through a Holder. Keeper repeats that, has the CAs
// published whenever they changed, and serves a certificate only when the API server has had some time to learn of its
// CA.
//
//	issued            2/3 of its life        + overlap               end
//	|-- serve A, trust A --|-- serve A, trust A+B --|-- serve B, trust A+B --|-- B --
//
// Each certificate has a CA of its own whose key is thrown away at once, so no key that could sign anything is ever
// stored. Issuing and rotating are pure functions of the time; Store does the I/O. Registrar publishes the CAs: it
// writes the MutatingWebhookConfiguration, or the bundles of one that somebody else manages.
package certs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Source is where the certificate comes from: a Store, Files, or a Serving that is never replaced.
type Source interface {
	// Load returns what should be served at now. Trusted are the CAs that the API server trusts.
	Load(ctx context.Context, now time.Time, trusted []byte) (*Serving, error)
}

const (
	// republish is how often the registration is looked at although nothing changed, in case somebody damaged it: while
	// it is gone, evicted pods come back unchanged and are evicted again.
	republish = time.Minute
	// announceTime is how long a CA is published before a certificate of it is served:
	// all API servers must have heard of it.
	announceTime = 15 * time.Second
	// reportEvery is how often the days left are logged, and soon is when that
	// needs a human: certificates of ours are renewed long before.
	reportEvery = 24 * time.Hour
	soon        = 14
)

// Keeper keeps the serving certificate and the registration of the webhook up to
// date. It is used by one goroutine, except for Registered.
type Keeper struct {
	Source    Source
	Registrar *Registrar // nil: somebody else registers the webhook
	// Interval is how often Source is asked while nothing is about to change; 0: in
	// each run. A certificate that ends within an hour is looked at in each run, too.
	Interval time.Duration
	Holder   *Holder
	Recorder interface{ Certificate(end, now time.Time) } // takes the end of the served certificate in each run

	wanted      []byte // CAs that were published last
	trusted     []byte // what Registrar returned for them
	publishedAt time.Time
	since       map[string]time.Time // when a CA in trusted was first seen there, by its bytes
	waiting     bool                 // a newer certificate is not served yet
	reportedAt  time.Time
	loadedAt    time.Time // when Source last answered

	failed atomic.Pointer[error] // why the last registration failed, if it did
}

// Registered returns why the last attempt to register the webhook failed. It may be called at any time.
func (k *Keeper) Registered() error {
	if failed := k.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// RunOnce loads the certificate and registers the webhook where that is due. A certificate that the API server does not
// trust yet has to wait until it does, as long as there is another one. An error leaves what was there in use.
func (k *Keeper) RunOnce(ctx context.Context, now time.Time) error {
	if k.rests(now) {
		return errors.Join(k.publish(ctx, k.wanted, now), k.report(ctx, now))
	}
	serving, err := k.Source.Load(ctx, now, k.trusted)
	if err != nil {
		k.loadedAt = time.Time{}
		return errors.Join(err, k.report(ctx, now))
	}
	k.loadedAt = now
	if err = k.publish(ctx, serving.CAs, now); err != nil {
		k.loadedAt = time.Time{} // those CAs are still to be published
	}
	return errors.Join(err, k.choose(ctx, serving, now), k.report(ctx, now))
}

// rests reports whether Source need not be asked.
func (k *Keeper) rests(now time.Time) bool {
	serving := k.Holder.Current()
	return serving != nil && !k.waiting && now.Before(k.loadedAt.Add(k.Interval)) && serving.NotAfter.After(now.Add(time.Hour))
}

// publish registers the webhook if the CAs or something else is new, the last time
// is long ago, or a certificate waits for its CA.
func (k *Keeper) publish(ctx context.Context, cas []byte, now time.Time) error {
	if k.Registrar == nil {
		return nil
	}
	changed := !bytes.Equal(k.wanted, cas)
	if !changed && !k.Registrar.Stale() && !k.waiting && now.Before(k.publishedAt.Add(republish)) {
		return nil
	}
	log := klog.FromContext(ctx)
	if changed && k.wanted != nil {
		log.Info("New client CA found, reloading and patching webhook")
	}
	trusted, err := k.Registrar.Apply(ctx, cas, now)
	k.failed.Store(&err)
	if err != nil {
		return err
	}
	if changed && k.wanted != nil {
		log.Info("Successfully patched webhook with new client CA")
	}
	if !changed && !bytes.Equal(trusted, k.trusted) {
		k.loadedAt = time.Time{} // another replica wants other CAs: it may have replaced the certificate
	}
	k.wanted, k.trusted, k.publishedAt = cas, trusted, now
	k.Holder.trust(trusted)
	seen := map[string]time.Time{}
	for _, ca := range parse(trusted) {
		id := string(ca.Raw)
		if seen[id] = now; !k.since[id].IsZero() {
			seen[id] = k.since[id]
		}
	}
	k.since = seen
	return nil
}

// choose serves the certificate now, or later if that is better. The error says that its own CAs do not stand for it.
func (k *Keeper) choose(ctx context.Context, next *Serving, now time.Time) error {
	log, before := klog.FromContext(ctx), k.Holder.Current()
	fresh := before == nil || !before.Certificate.Leaf.Equal(next.Certificate.Leaf)
	if k.waiting = fresh && before != nil && k.Registrar != nil && k.better(before, next, now); k.waiting {
		if !next.trustedBy(next.CAs, now) {
			return errors.New("the new certificate is not signed by the CAs that came with it, so the former one stays: give both of one issuer")
		}
		log.Info("New certificate found, waiting until the API server trusts it", "expires", next.NotAfter)
		return nil
	}
	if fresh && before != nil {
		log.Info("New certificate found, reloading", "expires", next.NotAfter)
	}
	if fresh {
		k.reportedAt = time.Time{}
	}
	k.Holder.Set(next)
	return nil
}

// better reports whether the API server trusts the served certificate, but not yet for sure the next.
func (k *Keeper) better(served, next *Serving, now time.Time) bool {
	var known []byte // CAs that were published long enough ago
	for ca, since := range k.since {
		if !now.Before(since.Add(announceTime)) {
			known = append(known, encode(certificateBlock, []byte(ca))...)
		}
	}
	return served.trustedBy(k.trusted, now.Add(announceTime)) && !next.trustedBy(known, now)
}

// report says how long the served certificate still lives. The error says that it expired.
func (k *Keeper) report(ctx context.Context, now time.Time) error {
	serving := k.Holder.Current()
	if serving == nil {
		return nil
	}
	k.Recorder.Certificate(serving.NotAfter, now)
	if !now.Before(serving.NotAfter) {
		return fmt.Errorf("the serving certificate expired on %s: renew it", serving.NotAfter.Format(time.RFC3339))
	}
	if now.Before(k.reportedAt.Add(reportEvery)) {
		return nil
	}
	k.reportedAt = now
	days := int(serving.NotAfter.Sub(now).Hours() / 24)
	log := klog.FromContext(ctx).WithValues("daysLeft", days, "expires", serving.NotAfter)
	if days < soon {
		log.Info("The serving certificate expires soon: if it is not of this program, see that it is renewed")
		return nil
	}
	log.V(1).Info("The serving certificate is valid")
	return nil
}

const keepInterval = 10 * time.Second

// Run calls RunOnce until ctx ends and logs what fails. With once set it only repeats until there is a certificate to
// serve. That need not be registered: what an earlier process registered may be what the API server needs.
func (k *Keeper) Run(ctx context.Context, once bool) {
	// It ends with ctx or as asked.
	_ = wait.PollUntilContextCancel(ctx, keepInterval, true, func(ctx context.Context) (bool, error) {
		err := k.RunOnce(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Certificate or registration of the webhook needs attention, retrying", "every", keepInterval)
		}
		return once && k.Holder.Current() != nil, nil
	})
}

// Serving is what one replica serves and wants the API server to trust.
type Serving struct {
	Certificate tls.Certificate
	CAs         []byte // PEM
	NotAfter    time.Time
}

func newServing(cert, key, cas []byte) (*Serving, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &Serving{Certificate: pair, CAs: cas, NotAfter: pair.Leaf.NotAfter}, nil
}

// Load returns s.
func (s *Serving) Load(context.Context, time.Time, []byte) (*Serving, error) { return s, nil }

// trustedBy reports whether a bundle of CAs (PEM) is enough to trust what is served.
func (s *Serving) trustedBy(bundle []byte, now time.Time) bool {
	chain := []*x509.Certificate{s.Certificate.Leaf}
	for _, der := range s.Certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, c)
		}
	}
	return verify(chain, bundle, "", now) == nil
}

// Holder gives the certificate to new connections. It is safe for
// concurrent use; the zero value has no certificate yet.
type Holder struct {
	now     atomic.Pointer[Serving]
	trusted atomic.Pointer[[]byte]
}

// Set replaces the certificate.
func (h *Holder) Set(s *Serving) { h.now.Store(s) }

func (h *Holder) trust(cas []byte) { h.trusted.Store(&cas) }

// Trusted returns the CAs (PEM) that were published to the API server, nil if somebody else publishes them.
func (h *Holder) Trusted() []byte {
	if cas := h.trusted.Load(); cas != nil {
		return *cas
	}
	return nil
}

// Current returns what is served, nil before the first Set.
func (h *Holder) Current() *Serving { return h.now.Load() }

var errNoCertificate = errors.New("no serving certificate yet")

// ForConnection is the GetCertificate of a tls.Config.
func (h *Holder) ForConnection(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := h.Current()
	if s == nil {
		return nil, errNoCertificate
	}
	return &s.Certificate, nil
}

// TrustAnnotation on the configuration remembers until when each CA in it is to be trusted. Replicas whose certificates
// come from files see new files at different times; what one of them adds the others must not take away.
const TrustAnnotation = "loadline.dev/trusted-until"

// grace is how long a CA stays trusted after the last replica wanted it. A CA
// that is wanted is noted again when half of that has passed.
const grace = 2 * time.Hour

// trust is what the API server trusts: the bundle, and by fingerprint until when.
type trust struct {
	bundle []byte
	until  map[string]time.Time
}

// with returns the trust of a replica that wants the given CAs (PEM) at now:
// those first, exactly as they are given, then the others that are not too old.
func (t trust) with(cas []byte, now time.Time) trust {
	next := trust{bundle: bytes.Clone(cas), until: map[string]time.Time{}}
	for _, ca := range parse(cas) {
		id := fingerprint(ca)
		next.until[id] = t.until[id]
		if next.until[id].Before(now.Add(grace / 2)) {
			next.until[id] = now.Add(grace)
		}
	}
	for _, ca := range parse(t.bundle) {
		id := fingerprint(ca)
		if _, there := next.until[id]; there || now.After(ca.NotAfter) {
			continue
		}
		until, noted := t.until[id]
		if !noted { // of another program, or of the time before this annotation
			until = now.Add(grace)
		}
		if now.After(until) {
			continue
		}
		next.until[id] = until
		if n := len(next.bundle); n > 0 && next.bundle[n-1] != '\n' {
			next.bundle = append(next.bundle, '\n')
		}
		next.bundle = append(next.bundle, encode(certificateBlock, ca.Raw)...)
	}
	return next
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:8])
}

func (t trust) note() (string, error) {
	whole := make(map[string]time.Time, len(t.until))
	for id, until := range t.until {
		whole[id] = until.UTC().Truncate(time.Second)
	}
	raw, err := json.Marshal(whole)
	return string(raw), err
}

// noted reads the value of TrustAnnotation; what cannot be read says nothing.
func noted(value string) map[string]time.Time {
	var until map[string]time.Time
	if json.Unmarshal([]byte(value), &until) != nil {
		return nil
	}
	return until
}
