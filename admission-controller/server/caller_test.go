package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/process"
)

func clientCertificate(t *testing.T, name string) (tls.Certificate, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestServer_RequiresClientCertificateIfConfigured(t *testing.T) {
	cert, cas := selfSigned(t)
	known, knownCA := clientCertificate(t, "apiserver")
	stranger, _ := clientCertificate(t, "apiserver")
	other, otherCA := clientCertificate(t, "kubelet")
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, append(knownCA, otherCA...), 0o600))
	r := &recorder{}
	s := New(Config{Environment: process.OS{},
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, Recorder: r,
		Handlers: []Handler{pods(func() Answer { return Answer{} })},
		Callers:  Callers{CAFile: file, Names: []string{"apiserver"}},
	})
	require.NoError(t, s.Listen())
	go func() { _ = s.Run(t.Context()) }()
	route, err := s.SelfProbe("127.0.0.1", cas)
	require.NoError(t, err)
	p := Prober{Environment: process.OS{}}
	defer p.close()
	require.NoError(t, p.Probe(t.Context(), route, time.Now()), "the kubelet, which has no certificate, must find it ready")

	ask := func(certificates ...tls.Certificate) (int, error) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cas)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", Certificates: certificates}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Post("https://"+route.Address+"/", "application/json", bytes.NewBufferString(review))
		if err != nil {
			return 0, err
		}
		require.NoError(t, response.Body.Close())
		return response.StatusCode, nil
	}
	code, err := ask()
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, code)
	require.Equal(t, []Cause{CauseClient}, r.causes)
	code, err = ask(known)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	_, err = ask(stranger)
	require.Error(t, err)
	_, err = ask(other)
	require.Error(t, err, "a certificate of the right CA, but of somebody else")

	require.NoError(t, os.WriteFile(file, otherCA, 0o600))
	_, err = ask(known)
	require.Error(t, err, "the file counts as it is now")
}

func TestCallersLoad_RejectsInvalidFile(t *testing.T) {
	_, err := Callers{CAFile: "/nowhere"}.Load()
	require.ErrorContains(t, err, "/nowhere")
	empty := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err = Callers{CAFile: empty}.Load()
	require.ErrorContains(t, err, "holds no certificate in PEM form")
}

func TestServer_RefusesHeadersAbove8KiB(t *testing.T) {
	cert, cas := selfSigned(t)
	s := New(Config{Environment: process.OS{}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, Recorder: &recorder{}})
	require.NoError(t, s.Listen())
	go func() { _ = s.Run(t.Context()) }()
	route, err := s.SelfProbe("127.0.0.1", cas)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+route.Address+ProbePath, nil)
	require.NoError(t, err)
	request.Header.Set("X-Large", strings.Repeat("x", 8<<10))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cas)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
}
