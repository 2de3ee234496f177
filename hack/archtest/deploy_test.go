package archtest

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/yaml"

	"loadline.dev/loadline/updater/nodeload"
)

// containerOf reads a manifest that begins with a Deployment of one container.
func containerOf(t *testing.T, manifest string) (name string, c corev1.Container) {
	t.Helper()
	d := deployment(t, manifest)
	return d.Namespace + "/" + d.Name, d.Spec.Template.Spec.Containers[0]
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	require.NoError(t, err)
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096).Decode(into))
}

func deployment(t *testing.T, manifest string) (d appsv1.Deployment) {
	t.Helper()
	readYAML(t, manifest, &d)
	require.Equal(t, "Deployment", d.Kind)
	require.Len(t, d.Spec.Template.Spec.Containers, 1)
	return d
}

// The taint of overloaded nodes must not keep the programs themselves from restarting.
func TestDeployments_TolerateOverloadedNodes(t *testing.T) {
	for _, program := range []string{"recommender", "updater", "admission-controller"} {
		d := deployment(t, "base/"+program+"/deployment.yaml")
		require.True(t, slices.ContainsFunc(d.Spec.Template.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.Key == nodeload.TaintKey && o.Operator == corev1.TolerationOpExists && o.Effect == corev1.TaintEffectNoSchedule
		}), program)
		require.Empty(t, deployment(t, "large/"+program+".yaml").Spec.Template.Spec.Tolerations, "the overlay would replace the list")
	}
}

// The overlay must patch the containers of deploy/base and match the table in docs/scale.md.
func TestLargeOverlay_MatchesDocs(t *testing.T) {
	overlay, err := os.ReadFile("../../deploy/large/kustomization.yaml")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	for _, program := range []string{"recommender", "updater", "admission-controller"} {
		require.Contains(t, string(overlay), "path: "+program+".yaml")
		name, base := containerOf(t, "base/"+program+"/deployment.yaml")
		patched, large := containerOf(t, "large/"+program+".yaml")
		require.Equal(t, name, patched)
		require.Equal(t, base.Name, large.Name)
		require.Empty(t, large.Args, "the list would replace that of the Deployment, and of other overlays")
		for _, c := range []corev1.Container{base, large} {
			limit := c.Resources.Limits.Memory().Value()
			at := map[string]string{}
			for _, e := range c.Env {
				at[e.Name] = e.Value
			}
			soft := resource.MustParse(strings.TrimSuffix(at["GOMEMLIMIT"], "B"))
			require.Equal(t, limit*9/10, soft.Value(), "%s: GOMEMLIMIT leaves a tenth of the memory limit", program)
		}
		l := large.Resources.Limits
		row := fmt.Sprintf("| %s | %s | %s | %s |", program, l.Memory(), l.Cpu(), largeQPS(t, name))
		require.True(t, strings.Contains(string(page), row), "docs/scale.md has no row %q", row)
	}
}

func largeQPS(t *testing.T, deployment string) string {
	t.Helper()
	var overlay struct {
		Patches []struct {
			Path   string
			Target struct{ Name string }
		}
	}
	readYAML(t, "large/kustomization.yaml", &overlay)
	_, name, _ := strings.Cut(deployment, "/")
	for _, patch := range overlay.Patches {
		if patch.Path != "requests.yaml" || !regexp.MustCompile("^"+patch.Target.Name+"$").MatchString(name) {
			continue
		}
		var operations []struct{ Value string }
		readYAML(t, "large/"+patch.Path, &operations)
		for _, operation := range operations {
			if qps, found := strings.CutPrefix(operation.Value, "--kube-api-qps="); found {
				return qps
			}
		}
	}
	return "as it is"
}

// A memory request covers the usage that docs/scale.md reports for 50,000 pods: live memory after
// an iteration, and the maximum during startup.
func TestMemoryRequests_CoverMeasuredUsage(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	for _, tc := range []struct{ name, row string }{
		{name: "recommender", row: "recommender"},
		{name: "updater", row: "updater"},
		{name: "admission-controller", row: "webhook"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			measured := regexp.MustCompile(`(?m)^\| ` + tc.row + ` \| (\d+) MiB \| (\d+) MiB \|`).FindStringSubmatch(string(page))
			require.Len(t, measured, 3, "docs/scale.md measures the %s", tc.row)
			_, c := containerOf(t, "base/"+tc.name+"/deployment.yaml")
			for _, used := range measured[1:] {
				need := resource.MustParse(used + "Mi")
				require.LessOrEqual(t, need.Value(), c.Resources.Requests.Memory().Value(), "%s takes %s MiB", tc.name, used)
			}
		})
	}
}
