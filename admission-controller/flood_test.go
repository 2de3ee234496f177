package admission

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/testkit"
)

// asProgram is the environment variable that makes the test binary run the program instead of its
// tests.
const asProgram = "LOADLINE_TEST_RUNS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(runProgram(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

type program struct {
	pid             int
	webhook, status string // addresses
	roots           *x509.CertPool
}

// startProgram runs the program against an API server with a small cluster.
func startProgram(t *testing.T) program {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	cluster := &testkit.CrowdServer{Crowd: testkit.Crowd{Pods: 100, Deployments: 20, Revisions: 2, Nodes: 5}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = io.WriteString(w, `{"major":"1","minor":"36"}`)
			return
		}
		cluster.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	certificate, key := servingCertificate(t)
	port, status := freePort(t), freePort(t)
	command := exec.CommandContext(t.Context(), os.Args[0],
		"--kubeconfig="+file("kubeconfig", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],`+
			`"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, server.URL)),
		"--port="+port, "--address=127.0.0.1:"+status, "--register-webhook=false",
		"--tls-cert-file="+file("tls.crt", certificate), "--tls-private-key="+file("tls.key", key))
	command.Env = append(os.Environ(), asProgram+"=1", "GOMEMLIMIT=450MiB", "GOMAXPROCS=1")
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill() // fails if the program ended
		_ = command.Wait()         // reports the signal
		if t.Failed() {
			t.Log(log.String())
		}
	})
	p := program{pid: command.Process.Pid, webhook: "127.0.0.1:" + port, status: "127.0.0.1:" + status, roots: x509.NewCertPool()}
	p.roots.AppendCertsFromPEM(certificate)
	require.Eventually(t, func() bool {
		connection, err := net.Dial("tcp", p.webhook)
		return err == nil && connection.Close() == nil
	}, 40*time.Second, 50*time.Millisecond, "the webhook does not listen")
	return p
}

func servingCertificate(t *testing.T) (certificate, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// memory returns a memory figure of the process in MiB: VmRSS is the current, VmHWM the peak
// resident set.
func (p program) memory(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var kilobytes int
		if _, err := fmt.Sscanf(line, name+": %d kB", &kilobytes); err == nil {
			return kilobytes >> 10
		}
	}
	require.Fail(t, "no such figure", name)
	return 0
}

// unfinished returns the start of a request header that never ends.
func unfinished(size int) []byte {
	header := bytes.NewBufferString("GET /probe HTTP/1.1\r\nHost: a\r\n")
	for i := 0; header.Len() < size; i++ {
		fmt.Fprintf(header, "%x: %080d\r\n", i, 0)
	}
	return header.Bytes()[:size]
}

// hold opens connections from several addresses and sends an unfinished header on each. They stay
// open until the test ends.
func hold(t *testing.T, address string, number, addresses int, config *tls.Config, header []byte) {
	open := func(i int) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i%addresses))}, Timeout: 10 * time.Second}
		connection, err := dialer.Dial("tcp", address)
		if err != nil {
			return // the program may close it in favor of another
		}
		t.Cleanup(func() { _ = connection.Close() }) // the program may have closed it already
		_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
		if config != nil {
			connection = tls.Client(connection, config)
		}
		_, _ = connection.Write(header) // fails on a refused connection
	}
	var done sync.WaitGroup
	const workers = 50
	for worker := range workers {
		done.Go(func() {
			for i := worker; i < number; i += workers {
				open(i)
			}
		})
	}
	done.Wait()
}

const createReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","resource":{"group":"","version":"v1","resource":"pods"},` +
	`"namespace":"ns","operation":"CREATE","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns"},"spec":{"containers":[{"name":"c"}]}}}}`

func (p program) review(t *testing.T, client *http.Client) {
	t.Helper()
	response, err := client.Post("https://"+p.webhook+"/", "application/json", strings.NewReader(createReview))
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Contains(t, string(answer), `"allowed":true`)
}

// Unauthenticated clients cannot exhaust the memory of the program or lock out the API server, the
// kubelet and Prometheus.
func TestProgram_SurvivesUnfinishedHeaders(t *testing.T) {
	const allowed = 500 * 6 / 10 // MiB, 60% of the limit in the manifest
	for _, tc := range []struct {
		name              string
		status            bool
		number, addresses int
		size              int
	}{
		{name: "webhook, headers that fit", number: 1100, addresses: 10, size: 8000},
		{name: "webhook, large headers", number: 1100, addresses: 10, size: 64 << 10},
		{name: "webhook, one address", number: 600, addresses: 1, size: 8000},
		{name: "metrics, headers that fit", status: true, number: 200, addresses: 10, size: 8000},
		{name: "metrics, large headers", status: true, number: 200, addresses: 10, size: 1 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := startProgram(t)
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.roots, ServerName: "127.0.0.1"}, MaxConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			api := &http.Client{Transport: transport, Timeout: 10 * time.Second}
			p.review(t, api)
			before := p.memory(t, "VmRSS")
			address, config := p.webhook, &tls.Config{RootCAs: p.roots, ServerName: "127.0.0.1"}
			if tc.status {
				address, config = p.status, nil
			}
			hold(t, address, tc.number, tc.addresses, config, unfinished(tc.size))
			start := time.Now()
			p.review(t, api)
			require.Less(t, time.Since(start), 2*time.Second)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
			for _, path := range []string{"/health-check", "/metrics"} {
				// Unhealthy until the first self-probe, which a busy machine delays.
				require.Eventually(t, func() bool {
					response, err := client.Get("http://" + p.status + path)
					return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
				}, 30*time.Second, time.Second, path)
			}
			t.Logf("resident: %d MiB before, %d MiB at most", before, p.memory(t, "VmHWM"))
			if !raced { // the race detector needs memory as well
				require.Less(t, p.memory(t, "VmHWM"), allowed)
			}
		})
	}
}
