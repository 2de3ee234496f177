package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/e2e/harness"
)

var programs = []string{"recommender", "updater", "admission-controller"}

type way struct {
	name string
	// The programs run in namespace, as Deployments with names that begin with prefix.
	namespace, prefix string
	install           func(t *testing.T, tag string)
	uninstall         func(t *testing.T)
}

func ways() []way {
	return []way{{
		name: "kustomize", namespace: harness.SystemNamespace, prefix: "vpa-",
		install: func(t *testing.T, tag string) { kubectl(t, "apply", "--validate=strict", "-k", overlay(t, tag)) },
		uninstall: func(t *testing.T) {
			kubectl(t, "delete", "-k", overlay(t, "after"))
			forget(t)
		},
	}, chart()}
}

// forget deletes objects that the programs have created for themselves.
func forget(t *testing.T) {
	t.Helper()
	kubectl(t, "-n", harness.SystemNamespace, "delete", "--ignore-not-found",
		"leases/vpa-recommender-lease", "leases/vpa-updater", "leases/vpa-updater-lease", "leases/vpa-admission-controller", "secrets/vpa-tls-certs")
}

func tree(tag string) string {
	if tag == "before" {
		return filepath.Join(images, tag)
	}
	return root
}

func overlay(t *testing.T, tag string) string {
	t.Helper()
	folder := t.TempDir()
	deploy, err := filepath.Abs(filepath.Join(tree(tag), "deploy"))
	require.NoError(t, err)
	base, err := filepath.Rel(folder, deploy)
	require.NoError(t, err)
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%[1]s, %[1]s/network-policy]\nimages:\n", base)
	for _, program := range programs {
		text += fmt.Sprintf("- {name: loadline-%s, newTag: %s}\n", program, tag)
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644))
	return folder
}

// chart installs the chart with its own names, the network policy, and definitions that are removed
// on uninstall.
func chart() way {
	const release = "loadline"
	helm := func(t *testing.T, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "helm"), append(args, "--namespace", harness.SystemNamespace, "--kubeconfig", cluster.Kubeconfig())...)
		cmd.Env = append(os.Environ(), "HOME="+cluster.Dir) // for its caches
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "helm %v: %s", args, out)
	}
	return way{
		name: "chart", namespace: harness.SystemNamespace, prefix: release + "-vertical-pod-autoscaler-",
		install: func(t *testing.T, tag string) {
			helm(t, "upgrade", "--install", release, filepath.Join(tree(tag), "charts", "loadline"), "--set", "crds.keep=false,networkPolicy.enabled=true,networkPolicy.apiServers={192.0.2.1/32}",
				"--set", fmt.Sprintf("recommender.image.tag=%[1]s,updater.image.tag=%[1]s,admissionController.image.tag=%[1]s", tag))
		},
		uninstall: func(t *testing.T) {
			helm(t, "uninstall", release)
			forget(t)
		},
	}
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.KubectlOutput(t.Context(), args...)
	require.NoError(t, err)
	return out
}

func load(t *testing.T, version string) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(images, version, "*.tar"))
	require.NoError(t, err)
	require.Len(t, archives, len(programs), "archives of %s", version)
	cmd := exec.CommandContext(t.Context(), cluster.Binary, append([]string{"load", "--dir", cluster.Dir}, archives...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), out.String())
	t.Log(strings.TrimSpace(out.String()))
}
