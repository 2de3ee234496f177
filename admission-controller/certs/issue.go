package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// backdate makes a new certificate valid for API servers with a slow clock.
const backdate = 5 * time.Minute

type issued struct{ ca, cert, key []byte }

// issue creates a CA, signs one serving certificate for the hosts, and discards the CA key.
func issue(hosts []string, now time.Time, life time.Duration) (issued, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return issued{}, fmt.Errorf("generate the key of the CA: %w", err)
	}
	ca, err := template("vpa_webhook_ca", now, life)
	if err != nil {
		return issued{}, err
	}
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return issued{}, fmt.Errorf("sign the CA: %w", err)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return issued{}, fmt.Errorf("generate the serving key: %w", err)
	}
	server, err := template(hosts[0], now, life)
	if err != nil {
		return issued{}, err
	}
	server.KeyUsage, server.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, host)
		}
	}
	certDER, err := x509.CreateCertificate(rand.Reader, server, ca, &key.PublicKey, caKey)
	if err != nil {
		return issued{}, fmt.Errorf("sign the serving certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return issued{}, fmt.Errorf("encode the serving key: %w", err)
	}
	return issued{ca: encode(certificateBlock, caDER), cert: encode(certificateBlock, certDER), key: encode("PRIVATE KEY", keyDER)}, nil
}

func template(name string, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(life),
	}, nil
}

const certificateBlock = "CERTIFICATE"

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func parse(data []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == certificateBlock {
			all = append(all, c)
		}
	}
	return all
}

func unexpired(bundle []byte, now time.Time) []byte {
	var kept []byte
	seen := map[string]bool{}
	for _, c := range parse(bundle) {
		if now.Before(c.NotAfter) && !seen[string(c.Raw)] {
			seen[string(c.Raw)] = true
			kept = append(kept, encode(certificateBlock, c.Raw)...)
		}
	}
	return kept
}

// Schedule holds the lifetime of certificates and how long a new CA is trusted before its use.
type Schedule struct {
	Life    time.Duration
	Overlap time.Duration
}

// DefaultSchedule returns one year and one hour. API servers learn of a new CA much faster.
func DefaultSchedule() Schedule { return Schedule{Life: 365 * 24 * time.Hour, Overlap: time.Hour} }

func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2) // divide first: 273 years, the reference's lifetime, times 2 overflows
}

// Keys of the Secret. The first three match the reference VPA.
const (
	bundleKey   = "caCert.pem" // all CAs to trust
	certKey     = "serverCert.pem"
	keyKey      = "serverKey.pem"
	nextCertKey = "nextServerCert.pem" // served after the overlap
	nextKeyKey  = "nextServerKey.pem"
)

// rotate returns the data of the Secret at now, and whether it changed. trusted holds the CAs that
// the API server trusts: the next certificate is not served before its own CA is among them.
func rotate(data map[string][]byte, hosts []string, s Schedule, now time.Time, trusted []byte) (map[string][]byte, bool, error) {
	serving, err := check(data[certKey], data[keyKey], data[bundleKey], hosts, now)
	intact := err == nil // present, undamaged, unexpired and for these hosts
	if intact && now.Before(renewAt(serving)) {
		return data, false, nil
	}
	next, err := check(data[nextCertKey], data[nextKeyKey], data[bundleKey], hosts, now)
	switch {
	case err == nil && (!intact || s.isDue(serving, next, now) && verify([]*x509.Certificate{next}, trusted, "", now) == nil):
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
	if !intact { // no overlap needed
		rotated[certKey], rotated[keyKey] = fresh.cert, fresh.key
		return rotated, true, nil
	}
	rotated[certKey], rotated[keyKey] = data[certKey], data[keyKey]
	rotated[nextCertKey], rotated[nextKeyKey] = fresh.cert, fresh.key
	return rotated, true, nil
}

// isDue reports whether the next certificate was announced long enough ago: the overlap, or half of
// the lifetime that the served certificate had left at the announcement, whichever is shorter.
func (s Schedule) isDue(serving, next *x509.Certificate, now time.Time) bool {
	announced := next.NotBefore.Add(backdate)
	overlap := min(s.Overlap, max(serving.NotAfter.Sub(announced), 0)/2)
	return !now.Before(announced.Add(overlap))
}

// verify checks that the bundle of CAs (PEM) trusts chain[0] at now. An empty host skips the name.
func verify(chain []*x509.Certificate, bundle []byte, host string, now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: intermediates, CurrentTime: now})
	return err
}

// check returns the certificate if it matches its key, is trusted, and is valid for every host.
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
