package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/pkg/testkit"
)

// The flags of the upstream VPA keep their names, types and defaults. Loadline's own flags are in a
// separate file.
func TestFlags_MatchGolden(t *testing.T) {
	config := Default()
	own, all := flags.New("own"), flags.New("admission-controller")
	config.addOwnFlags(own)
	config.AddFlags(all)
	var upstream, ours []string
	all.VisitAll(func(f *pflag.Flag) {
		line := fmt.Sprintf("%s %s %q", f.Name, f.Value.Type(), f.DefValue)
		if own.Lookup(f.Name) != nil {
			ours = append(ours, line)
		} else {
			upstream = append(upstream, line)
		}
	})
	golden(t, "flags.golden", upstream)
	golden(t, "flags-own.golden", ours)
}

// The metrics of the upstream VPA keep their names, types, labels and buckets.
func TestMetrics_MatchGolden(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	m.Request("applied", "Pod", time.Second)
	m.Step(server.StepTotal, time.Second)
	m.Problem(server.CausePanic)
	m.Certificate(time.Now(), time.Now())
	m.sizes.Add("pods", cache.NewStore(cache.MetaNamespaceKeyFunc))
	synctest.Test(t, func(t *testing.T) { // until the cache sizes are recorded
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		m.sizes.Run(ctx)
	})
	serving.NewClosedConnections(registry)
	lines, err := testkit.DescribeMetrics(registry)
	require.NoError(t, err)
	golden(t, "metrics.golden", lines)
}

func TestMetrics_CountPodsByMutation(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	for _, status := range []string{"applied", "skipped", "error"} {
		m.Request(status, "Pod", 0)
		m.Request(status, "VPA", 0)
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "vpa_admission_controller_admission_pods_total" {
			for _, metric := range f.GetMetric() {
				counts[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{"true": 1, "false": 2}, counts)
}

// golden compares lines with a file in testdata. UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	slices.Sort(lines)
	path := filepath.Join("testdata", name)
	text := strings.Join(lines, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

func start(args ...string) (code int, stderr string) {
	var out, errOut bytes.Buffer
	code = runProgram(args, &out, &errOut)
	return code, errOut.String()
}

// runProgram runs the program like main.
func runProgram(args []string, out, errOut io.Writer) (code int) {
	config := Default()
	program := flags.Program{Name: "admission-controller", Config: config, Logging: &config.Logging,
		Run: func(ctx context.Context) error { return Run(ctx, config, process.OS{}) }}
	return program.Main(args, out, errOut)
}

// freePort returns a port that is free at the time of the call.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

func TestStart_ReportsInvalidInputInOneLineEach(t *testing.T) {
	taken, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	free := freePort(t)
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	dead := filepath.Join(t.TempDir(), "dead")
	require.NoError(t, os.WriteFile(dead, []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600))
	half := filepath.Join(t.TempDir(), "cert")
	require.NoError(t, os.WriteFile(half, []byte("x"), 0o600))
	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{name: "unknown flag", args: []string{"--nonsense"}, code: flags.ExitUsage, want: []string{"unknown flag: --nonsense"}},
		{name: "wrong port and wrong TLS version", args: []string{"--port=0", "--min-tls-version=ssl3"}, code: flags.ExitUsage,
			want: []string{"--port=0: must be a port number", "--min-tls-version=ssl3: must be tls1_2 or tls1_3"}},
		{name: "one namespace and ignored namespaces", args: []string{"--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b"},
			code: flags.ExitUsage, want: []string{"give only one of the two"}},
		{name: "registration by URL without address", args: []string{"--register-by-url"}, code: flags.ExitUsage,
			want: []string{`--webhook-address="": --register-by-url needs an address that starts with https://`}},
		{name: "address without scheme", args: []string{"--register_by_url", "--webhook_address=10.0.0.1"}, code: flags.ExitUsage,
			want: []string{`starts with https://`}},
		{name: "port behind an address with a path",
			args: []string{"--register-by-url", "--webhook-address=https://10.0.0.1/", "--webhook-port=8000"}, code: flags.ExitUsage,
			want: []string{"must end with the host, because --webhook-port=8000 is put behind it"}},
		{name: "webhook timeout too long", args: []string{"--webhook-timeout-seconds=31"}, code: flags.ExitUsage,
			want: []string{"must be from 1 to 30"}},
		{name: "lease interval of zero", args: []string{"--status-lease-update-interval=0s"}, code: flags.ExitUsage,
			want: []string{"must be longer than 0"}},
		{name: "webhook and metrics on the same port", args: []string{"--port=8944"}, code: flags.ExitUsage,
			want: []string{"--port=8944: is also the port of --address=:8944: give them different ports"}},
		{name: "boost that is no quantity", args: []string{"--max-allowed-cpu-boost=much"}, code: flags.ExitUsage,
			want: []string{`want a quantity`}},
		{name: "feature gate of another program", args: []string{"--feature-gates=InPlaceOrRecreate=true"}, code: flags.ExitUsage,
			want: []string{"InPlaceOrRecreate"}},
		{name: "webhook port in use", args: []string{"--address=127.0.0.1:0", "--port=" + port}, code: flags.ExitFailed,
			want: []string{"serve the webhook on --port=" + port + ": listen tcp :" + port + ": bind: address already in use"}},
		{name: "metrics port in use", args: []string{"--address=:" + port, "--port=" + free}, code: flags.ExitFailed,
			want: []string{"address already in use"}},
		{name: "missing kubeconfig", args: []string{"--address=127.0.0.1:0", "--port=" + free, "--kubeconfig=/nowhere"},
			code: flags.ExitFailed, want: []string{"--kubeconfig=/nowhere"}},
		{name: "invalid kubeconfig", args: []string{"--address=127.0.0.1:0", "--port=" + free, "--kubeconfig=" + broken},
			code: flags.ExitFailed, want: []string{"must be a valid kubeconfig file"}},
		{name: "missing certificates",
			args: []string{"--address=127.0.0.1:0", "--port=" + free, "--kubeconfig=" + dead, "--register-webhook=false"},
			code: flags.ExitFailed, want: []string{"do not exist: mount them, or let the program issue"}},
		{name: "certificate without key",
			args: []string{"--address=127.0.0.1:0", "--port=" + free, "--kubeconfig=" + dead, "--tls-cert-file=" + half},
			code: flags.ExitFailed, want: []string{"serverKey.pem: no such file"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			code, stderr := start(append(tc.args, "--stderrthreshold=3", "--logtostderr=false", "--log-file="+log)...)
			require.Equal(t, tc.code, code, stderr)
			for _, want := range tc.want {
				require.Contains(t, stderr, want)
			}
			require.NotContains(t, stderr, "goroutine")
		})
	}
}

func TestStart_FailsWhenAPIServerIsUnreachable(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the timeout of the start")
	}
	dead := filepath.Join(t.TempDir(), "dead")
	require.NoError(t, os.WriteFile(dead, []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600))
	t.Parallel()
	code, stderr := start("--address=127.0.0.1:0", "--port="+freePort(t), "--kubeconfig="+dead)
	require.Equal(t, flags.ExitFailed, code)
	require.Contains(t, stderr, "API server https://127.0.0.1:1 did not answer for 30s")
}

func TestConfig_URLAndHost(t *testing.T) {
	t.Setenv("NAMESPACE", "vpa")
	config := Default()
	require.Equal(t, "vpa-webhook.vpa.svc", config.host())
	require.Empty(t, config.registration().URL)
	config.ByURL, config.WebhookAddress, config.WebhookPort = true, "https://127.0.0.1", "9443"
	require.NoError(t, config.Validate())
	require.Equal(t, "127.0.0.1", config.host())
	require.Equal(t, "https://127.0.0.1:9443", config.registration().URL)
	config.WebhookAddress, config.WebhookPort = "https://[::1]:9443", ""
	require.Equal(t, "::1", config.host())
}

func TestConfigTLS_FollowsFlags(t *testing.T) {
	config := Default()
	require.EqualValues(t, tls.VersionTLS12, config.tls().MinVersion)
	require.Nil(t, config.tls().CipherSuites, "Go's choice")
	config.MinTLS, config.Ciphers = "tls1_3", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:NOPE,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
	require.EqualValues(t, tls.VersionTLS13, config.tls().MinVersion)
	require.Equal(t, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, config.tls().CipherSuites)
	config.Ciphers = "NOPE"
	require.Nil(t, config.tls().CipherSuites, "without a known one it is Go's choice, too")
}

// A handshake on P-521 costs the webhook about 2 ms of CPU time, one on X25519 or P-256 at most a
// tenth of that.
func TestConfigTLS_RefusesExpensiveCurves(t *testing.T) {
	certificate, key := servingCertificate(t)
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	for _, tc := range []struct {
		name   string
		curves []tls.CurveID // client curves, nil for the defaults
		fails  bool
	}{
		{name: "defaults"},
		{name: "X25519", curves: []tls.CurveID{tls.X25519}},
		{name: "P-256", curves: []tls.CurveID{tls.CurveP256}},
		{name: "P-256 after P-521", curves: []tls.CurveID{tls.CurveP521, tls.CurveP256}},
		{name: "P-384", curves: []tls.CurveID{tls.CurveP384}, fails: true},
		{name: "P-521", curves: []tls.CurveID{tls.CurveP521}, fails: true},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(tc.name+", "+tls.VersionName(version), func(t *testing.T) {
				config := Default()
				ours := config.tls()
				ours.Certificates = []tls.Certificate{pair}
				near, far := net.Pipe()
				served := make(chan error)
				go func() {
					defer close(served)
					served <- tls.Server(far, ours).Handshake()
				}()
				client := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", CurvePreferences: tc.curves, MaxVersion: version})
				err := client.HandshakeContext(t.Context())
				require.Equal(t, tc.fails, err != nil, "%v", err)
				require.NoError(t, near.Close())
				require.Equal(t, tc.fails, <-served != nil)
			})
		}
	}
}

func TestConfigWarnings_ReportFlagsWithoutEffect(t *testing.T) {
	config := Default()
	require.Empty(t, config.Warnings())
	config.ByURL, config.Register, config.WebhookLabels = true, false, "x"
	config.Ciphers = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:NOPE"
	lines := strings.Join(config.Warnings(), "\n")
	require.Contains(t, lines, "--register-by-url=true: has no effect")
	require.Contains(t, lines, `--webhook-labels=x: ignored: "x" is no label`)
	require.Contains(t, lines, "no such secure suite: NOPE")
	require.Len(t, config.tls().CipherSuites, 1)
}
