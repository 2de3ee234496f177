package prometheus

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/e2e/prometheus/server"
)

// start fills a Prometheus with the samples of an OpenMetrics text, starts it, and
// returns its address. It ends with the test. Where there is none the test is skipped.
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
