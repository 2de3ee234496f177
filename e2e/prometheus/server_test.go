package prometheus

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/e2e/prometheus/server"
)

// start imports the samples of an OpenMetrics text into a Prometheus, starts it, and returns its
// address. The test is skipped without Prometheus.
func start(t *testing.T, text string) string {
	t.Helper()
	programs, err := server.Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	require.NoError(t, programs.Fill(t.Context(), dir, text))
	s, err := programs.Start(t.Context(), dir, "scrape_configs: []\n")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s.URL
}
