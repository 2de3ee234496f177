package prometheus

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFold(t *testing.T) {
	for name, want := range map[string]string{
		"app.kubernetes.io/name": "app_kubernetes_io_name", "app_kubernetes_io_name": "app_kubernetes_io_name",
		"appName": "app_name", "app_name": "app_name", "K8sApp": "k8s_app", "k8s-App": "k8s_app", "appURL": "app_url", "": "",
	} {
		require.Equal(t, want, FoldLabelName(name), name)
	}
}
