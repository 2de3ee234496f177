package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"time"
)

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

// Trusted returns the CAs (PEM) that were published to the API server, nil if somebody
// else publishes them.
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
