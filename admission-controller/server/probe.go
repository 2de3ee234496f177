package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
)

// Route is a way to a webhook.
type Route struct {
	Address string // to connect to, host:port
	Host    string // name in the certificate
	CAs     []byte // PEM; empty, because somebody else publishes them: any certificate will do
}

// Own returns the way to this server over the loopback device.
func (s *Server) Own(host string, cas []byte) (Route, error) {
	_, port, err := net.SplitHostPort(s.listener.Addr().String())
	return Route{Address: net.JoinHostPort("127.0.0.1", port), Host: host, CAs: cas}, err
}

// Probe asks a webhook whether it answers. The connection is made as the API
// server would make it: a new one, for the given name, trusting only the CAs.
func (r Route) Probe(ctx context.Context) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.CAs)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: r.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: len(r.CAs) == 0},
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, r.Address)
		},
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(r.Host, "443")+ProbePath, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("the webhook does not answer a probe of its own at %s: %w", r.Address, err)
	}
	defer func() { _ = response.Body.Close() }() // nothing of it is read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the webhook answers a probe of its own at %s with %s", r.Address, response.Status)
	}
	return nil
}
