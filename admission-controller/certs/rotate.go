package certs

import (
	"bytes"
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
// that differs from the given ones. Published are the CAs that the API server
// knows: the next certificate is not served before its own is among them.
func rotate(data map[string][]byte, hosts []string, s Schedule, now time.Time, published []byte) (map[string][]byte, bool, error) {
	serving, err := check(data[certKey], data[keyKey], data[bundleKey], hosts, now)
	if err != nil { // missing, damaged, expired, or for other hosts: nothing to overlap with
		fresh, err := issue(hosts, now, s.Life)
		if err != nil {
			return nil, false, err
		}
		return map[string][]byte{
			bundleKey: append(fresh.ca, unexpired(data[bundleKey], now)...), certKey: fresh.cert, keyKey: fresh.key,
		}, true, nil
	}
	if now.Before(renewAt(serving)) {
		return data, false, nil
	}
	next, err := check(data[nextCertKey], data[nextKeyKey], data[bundleKey], hosts, now)
	switch {
	case err != nil:
		fresh, err := issue(hosts, now, s.Life)
		if err != nil {
			return nil, false, err
		}
		return map[string][]byte{
			bundleKey: append(fresh.ca, unexpired(data[bundleKey], now)...),
			certKey:   data[certKey], keyKey: data[keyKey],
			nextCertKey: fresh.cert, nextKeyKey: fresh.key,
		}, true, nil
	case bytes.Equal(published, data[bundleKey]) && !now.Before(next.NotBefore.Add(backdate+s.Overlap)):
		return map[string][]byte{
			bundleKey: unexpired(data[bundleKey], now), certKey: data[nextCertKey], keyKey: data[nextKeyKey],
		}, true, nil
	}
	return data, false, nil
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
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	for _, host := range hosts {
		options := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between, CurrentTime: now}
		if _, err := chain[0].Verify(options); err != nil {
			return nil, fmt.Errorf("certificate is not valid for %s: %w", host, err)
		}
	}
	return chain[0], nil
}
