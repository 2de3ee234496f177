package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAuthority_IssuesServerAndClientCertificates(t *testing.T) {
	now := time.Now()
	authority, err := NewAuthority(now)
	require.NoError(t, err)
	server, err := authority.Server(now, "127.0.0.1", "localhost", "10.96.0.1", "*.kube-system.svc")
	require.NoError(t, err)
	client, err := authority.Client("somebody", now, "one", "two")
	require.NoError(t, err)

	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(authority.PEM))
	serverPair, err := tls.X509KeyPair(server.Cert, server.Key)
	require.NoError(t, err)
	clientPair, err := tls.X509KeyPair(client.Cert, client.Key)
	require.NoError(t, err)
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.TLS.VerifiedChains[0][0].Subject
		fmt.Fprint(w, name.CommonName, name.Organization)
	}))
	site.TLS = &tls.Config{Certificates: []tls.Certificate{serverPair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	site.StartTLS()
	defer site.Close()
	for _, name := range []string{"127.0.0.1", "localhost", "10.96.0.1", "metrics-server.kube-system.svc"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{clientPair}, ServerName: name}}
		answer, err := (&http.Client{Transport: transport}).Get(site.URL)
		require.NoError(t, err, name)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "somebody[one two]", string(body))
		transport.CloseIdleConnections()
	}

	block, _ := pem.Decode(server.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	require.True(t, cert.NotBefore.Before(now) && cert.NotAfter.After(now.Add(300*24*time.Hour)))
}
