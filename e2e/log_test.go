package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/e2e/harness"
)

func logSize(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	text, err := os.ReadFile(d.Log)
	require.NoError(t, err)
	return len(text)
}

func logLines(t *testing.T, d *harness.Daemon, from int, words string) (n int) {
	t.Helper()
	text, err := os.ReadFile(d.Log)
	require.NoError(t, err)
	return strings.Count(string(text[from:]), words)
}

func errorLines(t *testing.T, d *harness.Daemon) (found []string) {
	t.Helper()
	text, err := os.ReadFile(d.Log)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "E") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest")
	require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
	require.NoError(t, cluster.Kubectl(t.Context(), "apply", "-f", file))
}

// cleaned removes server-set fields from an object in JSON.
func cleaned(t *testing.T, object string) string {
	t.Helper()
	var o struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       any            `json:"spec"`
	}
	require.NoError(t, json.Unmarshal([]byte(object), &o))
	o.Metadata = map[string]any{"name": o.Metadata["name"]}
	text, err := json.Marshal(o)
	require.NoError(t, err)
	return string(text)
}
