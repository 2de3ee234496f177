package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Upgrades a release of upstream's chart to Loadline as documented in docs/migrate.md, after a
// trial, and rolls back. VPA objects stay the same. The hook jobs of the chart would not end with
// simulated pods, so they are disabled. The page says that the job for the CA does not run after a
// rollback.
func TestMigration_UpstreamChartAndBack(t *testing.T) {
	if os.Getenv("LOADLINE_MIGRATION") == "" {
		t.Skip("make e2e-migration looks at it: nothing of ours is installed afterwards")
	}
	for _, d := range []*harness.Daemon{recommender, updater, admission} {
		d.Stop()
	}
	manifests, err := harness.ReferenceManifests(t.Context())
	require.NoError(t, err)
	kubectl(t, "..", "delete", "--ignore-not-found", "-k", "deploy")
	kubectl(t, "..", "delete", "--ignore-not-found", "-k", manifests)
	kubectl(t, "..", "-n", harness.SystemNamespace, "delete", "--ignore-not-found", "secrets/vpa-tls-certs")
	chart, err := harness.ReferenceChart(t.Context())
	require.NoError(t, err)
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte("recommender: {replicas: 3, extraArgs: [--pod-recommendation-min-cpu-millicores=15]}\nupdater: {replicas: 1}\n"), 0o600))
	helm := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bin/helm", append(args, "--namespace", harness.SystemNamespace, "--kubeconfig", cluster.Kubeconfig())...)
		cmd.Dir = ".."
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "helm %v: %s", args, out)
		return string(out)
	}
	page, err := os.ReadFile("../docs/migrate.md")
	require.NoError(t, err)
	names := strings.NewReplacer("\\\n", "", "RELEASE", "vpa", "NAMESPACE", harness.SystemNamespace, "your-values.yaml", values, "registry.example/team", "r",
		"vertical-pod-autoscaler --repo https://kubernetes.github.io/autoscaler --version 0.13.0", chart)
	move := func(block int, args ...string) {
		t.Helper()
		words := strings.Fields(names.Replace(documented(t, string(page), "### A release of the reference's chart", block)))
		require.Equal(t, "helm", words[0])
		helm(append(words[1:], args...)...)
	}
	helm("install", "vpa", chart, "-f", values, "--no-hooks")
	w := newWorkload(t, "moving-chart", 1)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff))
	before, uid := chartObjects(t), getVPA(t, w).UID
	require.Contains(t, before, "Deployment vpa-vertical-pod-autoscaler-recommender: registry.k8s.io/autoscaling/vpa-recommender:1.8.1, replicas 3")

	require.Empty(t, webhookCA(t, upstreamWebhook), "the job has not run")
	hooks := helm("get", "hooks", "vpa")
	require.Contains(t, hooks, "\"helm.sh/hook\": post-install,post-upgrade")
	require.NotContains(t, hooks, "rollback")

	kubectl(t, "..", "apply", "-k", "deploy/crds")
	move(0)
	require.Equal(t, uid, getVPA(t, w).UID)
	after := chartObjects(t)
	require.Contains(t, after, "Deployment vpa-vertical-pod-autoscaler-recommender: r/loadline-recommender:v0.1.0, replicas 3")
	require.Contains(t, after, "Deployment vpa-vertical-pod-autoscaler-updater: r/loadline-updater:v0.1.0, replicas 1")
	require.Contains(t, after, "MutatingWebhookConfiguration vpa-webhook-config")
	require.NotContains(t, after, "MutatingWebhookConfiguration "+upstreamWebhook)

	move(1, "--no-hooks", "--force-conflicts") // the trial owns fields
	require.Equal(t, uid, getVPA(t, w).UID)
	require.Equal(t, before, chartObjects(t))
	helm("uninstall", "vpa", "--no-hooks")
}

const upstreamWebhook = "vpa-vertical-pod-autoscaler-webhook-config"

func webhookCA(t *testing.T, name string) []byte {
	t.Helper()
	config, err := cluster.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return config.Webhooks[0].ClientConfig.CABundle
}

// chartObjects returns sorted descriptions of a release's objects: Deployments with images,
// accounts, permissions, budgets and webhook configurations.
func chartObjects(t *testing.T) []string {
	t.Helper()
	found := programPermissions(t)
	deployments, err := cluster.Kube.AppsV1().Deployments(harness.SystemNamespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range deployments.Items {
		d := &deployments.Items[i]
		found = append(found, fmt.Sprintf("Deployment %s: %s, replicas %d", d.Name, d.Spec.Template.Spec.Containers[0].Image, *d.Spec.Replicas))
	}
	accounts, err := cluster.Kube.CoreV1().ServiceAccounts(harness.SystemNamespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range accounts.Items {
		found = append(found, "ServiceAccount "+accounts.Items[i].Name)
	}
	budgets, err := cluster.Kube.PolicyV1().PodDisruptionBudgets(harness.SystemNamespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range budgets.Items {
		found = append(found, "PodDisruptionBudget "+budgets.Items[i].Name)
	}
	hooks, err := cluster.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range hooks.Items {
		found = append(found, "MutatingWebhookConfiguration "+hooks.Items[i].Name)
	}
	slices.Sort(found)
	return found
}
