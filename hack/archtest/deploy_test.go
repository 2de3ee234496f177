package archtest

import (
	"bytes"
	"fmt"
	"os"
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

// deployed reads the first object of a manifest, a Deployment of one container.
func deployed(t *testing.T, manifest string) (name string, c corev1.Container) {
	t.Helper()
	d := deployment(t, manifest)
	return d.Namespace + "/" + d.Name, d.Spec.Template.Spec.Containers[0]
}

func deployment(t *testing.T, manifest string) (d appsv1.Deployment) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + manifest)
	require.NoError(t, err)
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096).Decode(&d))
	require.Equal(t, "Deployment", d.Kind)
	require.Len(t, d.Spec.Template.Spec.Containers, 1)
	return d
}

// The taint that the updater puts on nodes must not keep the programs themselves from coming back.
func TestTheProgramsTolerateTheTaintOfOverloadedNodes(t *testing.T) {
	for _, program := range []string{"recommender", "updater", "admission-controller"} {
		d := deployment(t, program+".yaml")
		require.True(t, slices.ContainsFunc(d.Spec.Template.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.Key == nodeload.TaintKey && o.Operator == corev1.TolerationOpExists && o.Effect == corev1.TaintEffectNoSchedule
		}), program)
		require.Empty(t, deployment(t, "large/"+program+".yaml").Spec.Template.Spec.Tolerations, "the overlay would replace the list")
	}
}

// The overlay for large clusters must change the containers of deploy/, keep their
// arguments, which its own replace, and be what docs/scale.md says.
func TestTheOverlayForLargeClustersFollowsItsTable(t *testing.T) {
	overlay, err := os.ReadFile("../../deploy/large/kustomization.yaml")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	for _, program := range []string{"recommender", "updater", "admission-controller"} {
		manifest := program + ".yaml"
		require.Contains(t, string(overlay), "path: "+manifest)
		name, base := deployed(t, manifest)
		patched, large := deployed(t, "large/"+manifest)
		require.Equal(t, name, patched)
		require.Equal(t, base.Name, large.Name)
		qps := "as it is"
		if large.Args != nil {
			require.Subset(t, large.Args, base.Args)
			_, value, found := strings.Cut(strings.Join(large.Args, " ")+" ", "--kube-api-qps=")
			require.True(t, found)
			qps, _, _ = strings.Cut(value, " ")
		}
		for _, c := range []corev1.Container{base, large} {
			limit := c.Resources.Limits.Memory().Value()
			at := map[string]string{}
			for _, e := range c.Env {
				at[e.Name] = e.Value
			}
			soft := resource.MustParse(strings.TrimSuffix(at["GOMEMLIMIT"], "B"))
			require.Equal(t, limit*9/10, soft.Value(), "%s: GOMEMLIMIT leaves a tenth of the memory limit", manifest)
		}
		l := large.Resources.Limits
		row := fmt.Sprintf("| %s | %s | %s | %s |", program, l.Memory(), l.Cpu(), qps)
		require.True(t, strings.Contains(string(page), row), "docs/scale.md has no row %q", row)
	}
}
