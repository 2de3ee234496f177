package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Schedule says how long certificates live and how long two CAs are trusted
// before the newer certificate is served.
type Schedule struct {
	Life    time.Duration
	Overlap time.Duration
}

// DefaultSchedule is a year, and an hour: far more than it takes the API servers
// to learn of a new CA.
func DefaultSchedule() Schedule { return Schedule{Life: 365 * 24 * time.Hour, Overlap: time.Hour} }

// renewAt is the time after which a certificate is replaced: two thirds of its
// life.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2) // in this order: the reference makes certificates for 273 years
}

// Keys of the Secret. The first three are those of the reference VPA.
const (
	bundleKey   = "caCert.pem" // every CA to be trusted
	certKey     = "serverCert.pem"
	keyKey      = "serverKey.pem"
	nextCertKey = "nextServerCert.pem" // what is served after the overlap
	nextKeyKey  = "nextServerKey.pem"
)

// rotate returns the data of the Secret as they should be at now, and whether
// that differs from the given ones. Trusted are the CAs that the API server
// trusts: the next certificate is not served before its own is among them.
func rotate(data map[string][]byte, hosts []string, s Schedule, now time.Time, trusted []byte) (map[string][]byte, bool, error) {
	serving, err := check(data[certKey], data[keyKey], data[bundleKey], hosts, now)
	intact := err == nil // neither missing, damaged, expired, nor for other hosts
	if intact && now.Before(renewAt(serving)) {
		return data, false, nil
	}
	next, err := check(data[nextCertKey], data[nextKeyKey], data[bundleKey], hosts, now)
	switch {
	case err == nil && (!intact || s.due(serving, next, now) && verify([]*x509.Certificate{next}, trusted, "", now) == nil):
		return map[string][]byte{
			bundleKey: unexpired(data[bundleKey], now), certKey: data[nextCertKey], keyKey: data[nextKeyKey],
		}, true, nil
	case err == nil:
		return data, false, nil
	}
	fresh, err := issue(hosts, now, s.Life)
	if err != nil {
		return nil, false, err
	}
	rotated := map[string][]byte{bundleKey: append(fresh.ca, unexpired(data[bundleKey], now)...)}
	if !intact { // nothing to overlap with
		rotated[certKey], rotated[keyKey] = fresh.cert, fresh.key
		return rotated, true, nil
	}
	rotated[certKey], rotated[keyKey] = data[certKey], data[keyKey]
	rotated[nextCertKey], rotated[nextKeyKey] = fresh.cert, fresh.key
	return rotated, true, nil
}

// due reports whether the next certificate was announced long enough ago: for the
// time of the overlap, or for half of what the served one then had left.
func (s Schedule) due(serving, next *x509.Certificate, now time.Time) bool {
	announced := next.NotBefore.Add(backdate)
	overlap := min(s.Overlap, max(serving.NotAfter.Sub(announced), 0)/2)
	return !now.Before(announced.Add(overlap))
}

// verify says why a bundle of CAs (PEM) is not enough to trust the first certificate of
// a chain at now; for a host, unless that is empty.
func verify(chain []*x509.Certificate, bundle []byte, host string, now time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between, CurrentTime: now})
	return err
}

// check returns the serving certificate if it fits its key, is trusted by the
// bundle and is valid for every host at now.
func check(cert, key, bundle []byte, hosts []string, now time.Time) (*x509.Certificate, error) {
	if len(cert) == 0 || len(key) == 0 {
		return nil, errors.New("there is no certificate")
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("certificate and key do not fit: %w", err)
	}
	chain := parse(cert)
	for _, host := range hosts {
		if err := verify(chain, bundle, host, now); err != nil {
			return nil, fmt.Errorf("certificate is not valid for %s: %w", host, err)
		}
	}
	return chain[0], nil
}
