package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// deploy/large is a component, which cannot be applied on its own.
func TestOverlays_PassServerDryRun(t *testing.T) {
	parallelTest(t)
	overlays, err := filepath.Glob("../deploy/overlays/*")
	require.NoError(t, err)
	require.NotEmpty(t, overlays)
	additions, err := filepath.Glob("../deploy/*/kustomization.yaml")
	require.NoError(t, err)
	for _, file := range additions {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if component := filepath.Base(filepath.Dir(file)) == "large"; component {
			require.Contains(t, string(text), "kind: Component")
			continue
		}
		overlays = append(overlays, filepath.Dir(file))
	}
	for _, folder := range overlays {
		in, err := filepath.Rel("..", folder)
		require.NoError(t, err)
		kubectl(t, "..", "apply", "--dry-run=server", "--validate=strict", "-k", in)
	}
	kubectl(t, "..", "apply", "--dry-run=server", "--validate=strict", "-f", "deploy/loadline.yaml")
}
