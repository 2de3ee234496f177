package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// backdate makes a fresh certificate valid for servers whose clock is behind.
const backdate = 5 * time.Minute

// issued is a serving certificate with the CA that signed it, in PEM.
type issued struct{ ca, cert, key []byte }

// issue makes a CA, signs one serving certificate for the hosts (DNS names or
// IP addresses) with it and forgets the CA's key.
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

// parse returns all certificates in PEM data and skips what is none.
func parse(data []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == certificateBlock {
			all = append(all, c)
		}
	}
	return all
}

// unexpired returns the CAs of a bundle that have not expired, each once.
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
