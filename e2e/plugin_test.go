package e2e

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

// Other tests cover policy detach, and explain of sharing pods.
func TestPlugin_CommandsAgainstAPIServer(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "plugin", 2)
	bare := w
	bare.Name, bare.Containers = "bare", []harness.Container{{Name: "app", CPU: "700m", Memory: "900Mi"}}
	before := startWorkload(t, w)
	startWorkload(t, bare)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff))
	awaitRecommendation(t, w)
	ask := func(args ...string) string {
		t.Helper()
		return runPlugin(t, append(args, "-n", w.Namespace)...)
	}

	eventually(t, "there is usage of the Deployment without a VPA", func() error {
		if text := ask("recommend"); !strings.Contains(text, "the metrics API") {
			return errors.New(text)
		}
		return nil
	})
	require.Regexp(t, `(?m)^plugin +Deployment bare\s+app\s+2\s+700m\s.*the metrics API$`, ask("recommend"))
	require.Regexp(t, `(?m)^plugin +Deployment web\s+app\s+2\s+100m\s.*VPA web$`, ask("recommend"))
	require.Regexp(t, `(?m)^plugin +Deployment web\s+app\s+memory\s.*VPA web$`, ask("diff"))
	require.Regexp(t, `(?m)^\s+cpu target\s+cpu quantile 0\.9\s`, ask("explain", "--from-checkpoint", "web"))
	// The recommender of these tests is not a pod, so it cannot be reached through the API server's
	// proxy.
	require.Regexp(t, `(?s)^! query the recommender in namespace kube-system: .*\nVPA plugin/web\n.*\n  cpu published `, ask("explain", "web"))
	require.Contains(t, ask("explain", "pod/"+before[0].Name), "web")
	require.Contains(t, ask("export", "deployment/web"), "kind: Deployment")
	require.Contains(t, ask("export", "-o", "kustomize", "deployment/web"), "kind: Kustomization")
	require.Contains(t, ask("export", "-o", "helm", "deployment/web"), "resources:")
	require.Contains(t, ask("why", "pod/"+before[0].Name), "plugin/"+before[0].Name)
	ask("history")
	require.Regexp(t, `(?m)^ +Deployment plugin/web +\d`, ask("savings"))
	require.Regexp(t, `(?m)^Checks made: \d+, findings: \d+$`, ask("doctor"))
	require.Regexp(t, `(?m)^Checks made: \d+, findings: \d+$`, ask("migrate", "check"))

	created := filepath.Join(t.TempDir(), "vpas.yaml")
	require.NoError(t, os.WriteFile(created, []byte(ask("create")), 0o600))
	kubectl(t, ".", "apply", "--dry-run=server", "-f", created)
	require.Contains(t, ask("create", "--apply"), "deployment-bare")
	getVPA(t, harness.Workload{Namespace: w.Namespace, Name: "deployment-bare"})

	for _, format := range []string{"table", "wide", "md"} {
		require.Contains(t, ask("status", "-o", format), "web", format)
	}
	var said map[string]any
	require.NoError(t, json.Unmarshal([]byte(withoutWarnings(ask("status", "-o", "json"))), &said))
	require.NotEmpty(t, said)
	var again map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(withoutWarnings(ask("status", "-o", "yaml"))), &again))
	require.Len(t, again, len(said))
	rows, err := csv.NewReader(strings.NewReader(withoutWarnings(ask("status", "-o", "csv")))).ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(rows), 1)

	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeRecommend)
	listed, err := cluster.KubectlOutput(t.Context(), "get", "sp", w.Namespace)
	require.NoError(t, err)
	require.Regexp(t, `^NAME\s+MODE\s+PRIORITY\s+READY\s+REASON\s+FUSE TRIPPED\s+SELECTED\s+AGE\nplugin\s+Recommend\s`, listed)
	deletePolicy(t, w.Namespace)
}

func withoutWarnings(printed string) string {
	var kept []string
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "! ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
