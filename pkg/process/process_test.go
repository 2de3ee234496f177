package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/flags"
)

func TestRESTConfig_RefusesUnusableKubeconfigs(t *testing.T) {
	_, err := OS{}.RESTConfig(flags.Kube{Kubeconfig: "/no/such/file"}, "test")
	require.ErrorContains(t, err, "--kubeconfig=/no/such/file: must be a readable kubeconfig file")
	bad := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(bad, []byte("{{"), 0o600))
	_, err = OS{}.RESTConfig(flags.Kube{Kubeconfig: bad}, "test")
	require.ErrorContains(t, err, "must be a valid kubeconfig file")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err = OS{}.RESTConfig(flags.Kube{}, "test")
	require.ErrorContains(t, err, "not running in a pod: set the path of a kubeconfig file")
}
