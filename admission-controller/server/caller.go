package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
)

// Callers says who may ask for reviews. The zero value lets anybody.
type Callers struct {
	CAFile string   // CAs (PEM) of client certificates; empty: no certificate is asked for
	Names  []string // common names of them; empty: any
}

// Load reads the CAs.
func (c Callers) Load() (*x509.CertPool, error) {
	content, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CAs of the API server's client certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("read the CAs of the API server's client certificate: %s holds no certificate in PEM form", c.CAFile)
	}
	return pool, nil
}

// demand makes connections ask for a certificate. One that has none can still
// ask for ProbePath, as the kubelet does; one with a wrong one is refused. The
// file is read for each connection, so that it may change at any time.
func (c Callers) demand(config *tls.Config) {
	config.ClientAuth = tls.RequestClientCert
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		pool, err := c.Load()
		if err != nil {
			return err
		}
		return c.verify(state.PeerCertificates, pool)
	}
}

func (c Callers) verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, issuer := range chain[1:] {
		between.AddCert(issuer)
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := chain[0].Verify(options); err != nil {
		return fmt.Errorf("client certificate of %q: %w", chain[0].Subject.CommonName, err)
	}
	if len(c.Names) > 0 && !slices.Contains(c.Names, chain[0].Subject.CommonName) {
		return fmt.Errorf("client certificate is of %q, must be of %s", chain[0].Subject.CommonName, strings.Join(c.Names, " or "))
	}
	return nil
}

var errNoClientCertificate = errors.New("the client has no certificate, which --webhook-client-ca-file demands: give the API server one in its admission configuration")

// permits reports whether a request came over a connection that may ask for
// reviews.
func (c Callers) permits(request *http.Request) bool {
	return c.CAFile == "" || request.TLS != nil && len(request.TLS.PeerCertificates) > 0
}
