package prometheus

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/e2e/prometheus/server"
)

const monitoring = "../../deploy/monitoring"

func TestAlerts_FireOnTestSeries(t *testing.T) {
	programs, err := server.Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, programs.TestRules(t.Context(), filepath.Join(monitoring, "rules-test.yaml")))

	dir := t.TempDir()
	for _, name := range []string{"rules.yaml", "rules-test.yaml"} {
		text, err := os.ReadFile(filepath.Join(monitoring, name))
		require.NoError(t, err)
		if name == "rules.yaml" {
			text = []byte(strings.ReplaceAll(string(text), "days_left < 14", "days_left < 4"))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	require.ErrorContains(t, programs.TestRules(t.Context(), filepath.Join(dir, "rules-test.yaml")), "LoadlineCertificateExpires",
		"a rule that does not fire is found")
}

func TestDashboards_QueriesAreValid(t *testing.T) {
	address := start(t, "# TYPE up gauge\nup 1 1700000000\n# EOF\n")
	files, err := filepath.Glob(filepath.Join(monitoring, "dashboards", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	asked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var page struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		require.NoError(t, json.Unmarshal(text, &page), file)
		for _, panel := range page.Panels {
			for _, target := range panel.Targets {
				expr := strings.NewReplacer("$namespace", ".*", "$vpa", ".*", "$policy", ".*").Replace(target.Expr)
				response, err := http.Get(address + "/api/v1/query?query=" + url.QueryEscape(expr))
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Equal(t, http.StatusOK, response.StatusCode, "%s/%s: %s", filepath.Base(file), panel.Title, expr)
				asked++
			}
		}
	}
	require.Greater(t, asked, 40)
}
