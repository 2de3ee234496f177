package updater

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/flags"
)

// Validation also reads the token file.
func TestPrometheusFlags_RejectInvalidValues(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "token")
	for want, args := range map[string][]string{
		"--prometheus-address: prometheus:9090 must be a URL such as":                              {"--prometheus-address=prometheus:9090"},
		"--prometheus-query-timeout=5m: must be at most 1m0s":                                      {"--prometheus-address=http://prometheus", "--prometheus-query-timeout=5m"},
		"--prometheus-bearer-token-file=" + missing + ": must be a file with a token: ":            {"--prometheus-bearer-token-file=" + missing},
		"--prometheus-bearer-token=(hidden): excludes --prometheus-bearer-token-file=/proc/uptime": {"--prometheus-bearer-token=a", "--prometheus-bearer-token-file=/proc/uptime"},
	} {
		code, stderr := start(append(args, "--v=0", "--kubeconfig=/no/such/file")...)
		require.Equal(t, flags.ExitUsage, code, stderr)
		require.Contains(t, stderr, want)
	}
	require.NoError(t, os.WriteFile(missing, []byte("secret"), 0o600))
	code, stderr := start("--prometheus-address=http://prometheus", "--prometheus-bearer-token-file="+missing, "--address=127.0.0.1:0", "--v=0", "--kubeconfig=/no/such/file")
	require.Equal(t, flags.ExitFailed, code, "only the kubeconfig is wrong")
	require.Contains(t, stderr, "must be a readable kubeconfig file")
}
