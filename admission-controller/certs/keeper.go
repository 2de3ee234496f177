// Package certs manages the serving certificate of the webhook and the CAs that the API server must
// trust.
//
// A Source provides the certificate. Store keeps it in a Secret: the first replica creates it, and
// before a certificate expires the next one is issued, published, and only then served. Files reads
// mounted files that another program renews. Keeper loads the source periodically, publishes
// changed CAs through a Registrar, and serves a certificate through a Holder once the API server
// had time to learn of its CA.
//
//	issued            2/3 of its life        + overlap               end
//	|-- serve A, trust A --|-- serve A, trust A+B --|-- serve B, trust A+B --|-- B --
//
// Each certificate has its own CA. The key of the CA is discarded at once, so no signing key is
// ever stored. Issuing and rotating are pure functions of time.
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

// Source provides the certificate: a Store, Files, or a Serving that is never replaced.
type Source interface {
	// Load returns the certificate to serve at now. Trusted are the CAs that the API server trusts.
	Load(ctx context.Context, now time.Time, trusted []byte) (*Serving, error)
}

const (
	// republishInterval is how often an unchanged registration is checked for damage: while it is
	// missing, evicted pods come back unchanged and are evicted again.
	republishInterval = time.Minute
	// announceDelay is how long a CA is published before use, so that all API servers have it.
	announceDelay = 15 * time.Second
	// expiryLogInterval is how often the remaining days are logged. Below minDaysLeft an operator
	// must act: self-issued certificates are renewed long before.
	expiryLogInterval = 24 * time.Hour
	minDaysLeft       = 14
)

// Keeper keeps certificate and registration up to date. Only Registered may be called concurrently.
type Keeper struct {
	Source    Source
	Registrar *Registrar // nil: another program registers the webhook
	// Interval is how often Source is loaded while no change is pending, 0 for each run. A
	// certificate that expires within an hour is loaded in each run too.
	Interval time.Duration
	Holder   *Holder
	Recorder interface{ Certificate(end, now time.Time) } // called with the expiry in each run

	published    []byte // CAs that were published last
	trusted      []byte // result of Registrar for published
	publishedAt  time.Time
	trustedSince map[string]time.Time // when a trusted CA was first seen, by its bytes
	waiting      bool                 // a newer certificate is not served yet
	reportedAt   time.Time
	loadedAt     time.Time // when Source last succeeded

	registerError atomic.Pointer[error] // error of the last registration, if any
}

// Registered returns the error of the last registration, if any. It may be called at any time.
func (k *Keeper) Registered() error {
	if failed := k.registerError.Load(); failed != nil {
		return *failed
	}
	return nil
}

// RunOnce loads the certificate and registers the webhook if due. A certificate not yet trusted by
// the API server waits while another works. On errors the current certificate stays in use.
func (k *Keeper) RunOnce(ctx context.Context, now time.Time) error {
	if k.isFresh(now) {
		return errors.Join(k.publish(ctx, k.published, now), k.reportExpiry(ctx, now))
	}
	serving, err := k.Source.Load(ctx, now, k.trusted)
	if err != nil {
		k.loadedAt = time.Time{}
		return errors.Join(err, k.reportExpiry(ctx, now))
	}
	k.loadedAt = now
	if err = k.publish(ctx, serving.CAs, now); err != nil {
		k.loadedAt = time.Time{} // still to be published
	}
	return errors.Join(err, k.serve(ctx, serving, now), k.reportExpiry(ctx, now))
}

func (k *Keeper) isFresh(now time.Time) bool {
	serving := k.Holder.Current()
	return serving != nil && !k.waiting && now.Before(k.loadedAt.Add(k.Interval)) && serving.NotAfter.After(now.Add(time.Hour))
}

// publish registers the webhook after a change, periodically, and while a certificate waits.
func (k *Keeper) publish(ctx context.Context, cas []byte, now time.Time) error {
	if k.Registrar == nil {
		return nil
	}
	changed := !bytes.Equal(k.published, cas)
	if !changed && !k.Registrar.Stale() && !k.waiting && now.Before(k.publishedAt.Add(republishInterval)) {
		return nil
	}
	log := klog.FromContext(ctx)
	if changed && k.published != nil {
		log.Info("New client CA found, reloading and patching webhook")
	}
	trusted, err := k.Registrar.Apply(ctx, cas, now)
	k.registerError.Store(&err)
	if err != nil {
		return err
	}
	if changed && k.published != nil {
		log.Info("Successfully patched webhook with new client CA")
	}
	if !changed && !bytes.Equal(trusted, k.trusted) {
		k.loadedAt = time.Time{} // another replica may have replaced the certificate
	}
	k.published, k.trusted, k.publishedAt = cas, trusted, now
	k.Holder.trust(trusted)
	seen := map[string]time.Time{}
	for _, ca := range parse(trusted) {
		id := string(ca.Raw)
		if seen[id] = now; !k.trustedSince[id].IsZero() {
			seen[id] = k.trustedSince[id]
		}
	}
	k.trustedSince = seen
	return nil
}

// serve uses the certificate now, or later if the current one is safer. Its own CAs must sign it.
func (k *Keeper) serve(ctx context.Context, next *Serving, now time.Time) error {
	log, before := klog.FromContext(ctx), k.Holder.Current()
	fresh := before == nil || !before.Certificate.Leaf.Equal(next.Certificate.Leaf)
	if k.waiting = fresh && before != nil && k.Registrar != nil && k.shouldWait(before, next, now); k.waiting {
		if !next.trustedBy(next.CAs, now) {
			return errors.New("new certificate is not signed by the CAs provided with it, keeping the current one: provide both from the same issuer")
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

// shouldWait reports whether the API server trusts the served certificate, but maybe not the next.
func (k *Keeper) shouldWait(served, next *Serving, now time.Time) bool {
	var announced []byte // CAs that were published long enough ago
	for ca, since := range k.trustedSince {
		if !now.Before(since.Add(announceDelay)) {
			announced = append(announced, encode(certificateBlock, []byte(ca))...)
		}
	}
	return served.trustedBy(k.trusted, now.Add(announceDelay)) && !next.trustedBy(announced, now)
}

// reportExpiry records and logs the expiry of the served certificate. An expired one is an error.
func (k *Keeper) reportExpiry(ctx context.Context, now time.Time) error {
	serving := k.Holder.Current()
	if serving == nil {
		return nil
	}
	k.Recorder.Certificate(serving.NotAfter, now)
	if !now.Before(serving.NotAfter) {
		return fmt.Errorf("the serving certificate expired on %s: renew it", serving.NotAfter.Format(time.RFC3339))
	}
	if now.Before(k.reportedAt.Add(expiryLogInterval)) {
		return nil
	}
	k.reportedAt = now
	days := int(serving.NotAfter.Sub(now).Hours() / 24)
	log := klog.FromContext(ctx).WithValues("daysLeft", days, "expires", serving.NotAfter)
	if days < minDaysLeft {
		log.Info("The serving certificate expires soon: if another program issues it, check that it gets renewed")
		return nil
	}
	log.V(1).Info("The serving certificate is valid")
	return nil
}

const keepInterval = 10 * time.Second

// Run calls RunOnce until ctx ends and logs errors. With once, it returns when there is a
// certificate, even if not registered: the registration of an earlier process may still work.
func (k *Keeper) Run(ctx context.Context, once bool) {
	_ = wait.PollUntilContextCancel(ctx, keepInterval, true, func(ctx context.Context) (bool, error) {
		err := k.RunOnce(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Certificate or registration of the webhook needs attention, retrying", "every", keepInterval)
		}
		return once && k.Holder.Current() != nil, nil
	})
}

// Serving is the certificate of one replica with the CAs that the API server must trust.
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

func (s *Serving) trustedBy(bundle []byte, now time.Time) bool {
	chain := []*x509.Certificate{s.Certificate.Leaf}
	for _, der := range s.Certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, c)
		}
	}
	return verify(chain, bundle, "", now) == nil
}

// Holder holds the served certificate, none at first. It is safe for concurrent use.
type Holder struct {
	current atomic.Pointer[Serving]
	trusted atomic.Pointer[[]byte]
}

// Set replaces the certificate.
func (h *Holder) Set(s *Serving) { h.current.Store(s) }

func (h *Holder) trust(cas []byte) { h.trusted.Store(&cas) }

// Trusted returns the published CAs (PEM), nil if another program publishes them.
func (h *Holder) Trusted() []byte {
	if cas := h.trusted.Load(); cas != nil {
		return *cas
	}
	return nil
}

// Current returns the served certificate, nil before the first Set.
func (h *Holder) Current() *Serving { return h.current.Load() }

var errNoCertificate = errors.New("no serving certificate yet")

// ForConnection is the GetCertificate of a tls.Config.
func (h *Holder) ForConnection(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := h.Current()
	if s == nil {
		return nil, errNoCertificate
	}
	return &s.Certificate, nil
}

// TrustAnnotation holds the time until which each CA is trusted. Replicas see new mounted files at
// different times, and must not remove each other's CAs.
const TrustAnnotation = "loadline.dev/trusted-until"

// trustGrace is how long a CA stays trusted after the last replica required it. A required CA is
// renewed after half of that time.
const trustGrace = 2 * time.Hour

// trust holds the CA bundle of the API server and the expiry of trust by fingerprint.
type trust struct {
	bundle []byte
	until  map[string]time.Time
}

// with returns the trust of a replica that requires the given CAs (PEM) at now: these first and
// unchanged, then the other CAs that are still trusted.
func (t trust) with(cas []byte, now time.Time) trust {
	next := trust{bundle: bytes.Clone(cas), until: map[string]time.Time{}}
	for _, ca := range parse(cas) {
		id := fingerprint(ca)
		next.until[id] = t.until[id]
		if next.until[id].Before(now.Add(trustGrace / 2)) {
			next.until[id] = now.Add(trustGrace)
		}
	}
	for _, ca := range parse(t.bundle) {
		id := fingerprint(ca)
		if _, there := next.until[id]; there || now.After(ca.NotAfter) {
			continue
		}
		until, noted := t.until[id]
		if !noted { // added by another program or an older version
			until = now.Add(trustGrace)
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

func (t trust) encode() (string, error) {
	whole := make(map[string]time.Time, len(t.until))
	for id, until := range t.until {
		whole[id] = until.UTC().Truncate(time.Second)
	}
	raw, err := json.Marshal(whole)
	return string(raw), err
}

func parseTrust(value string) map[string]time.Time {
	var until map[string]time.Time
	if json.Unmarshal([]byte(value), &until) != nil {
		return nil
	}
	return until
}
