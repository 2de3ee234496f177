package plugintest

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// DeploymentsIn returns the Deployments of manifests, in their order.
func DeploymentsIn(t *testing.T, files ...string) (all []*appsv1.Deployment) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
			d := &appsv1.Deployment{}
			require.NoError(t, yaml.Unmarshal(part, d))
			if d.Kind == "Deployment" {
				d.CreationTimestamp = metav1.NewTime(Before(600))
				all = append(all, d)
			}
		}
	}
	require.Len(t, all, 3)
	return all
}

// ManifestDeployments returns the Deployments of deploy/base.
func ManifestDeployments(t *testing.T) []*appsv1.Deployment {
	t.Helper()
	return DeploymentsIn(t, "../../deploy/base/recommender/deployment.yaml", "../../deploy/base/updater/deployment.yaml", "../../deploy/base/admission-controller/deployment.yaml")
}
