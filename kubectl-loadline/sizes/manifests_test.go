package sizes

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/target"
)

func workloadsNamed(keys ...target.Key) (all []*inventory.Workload) {
	for _, key := range keys {
		all = append(all, &inventory.Workload{Key: key})
	}
	return all
}

var (
	webKey   = target.Key{Namespace: "shop", Kind: "Deployment", Name: "web"}
	frontKey = target.Key{Namespace: "shop", Kind: "Deployment", Name: "front"}
	setKey   = target.Key{Namespace: "data", Kind: "StatefulSet", Name: "db"}
	ownKey   = target.Key{Namespace: "shop", Group: "argoproj.io", Kind: "Rollout", Name: "api"}
)

func TestCreate_VPAs(t *testing.T) {
	c := objects(t, workloadsNamed(webKey, setKey, ownKey), createOptions{All: true})
	require.Equal(t, []string{"Rollout.argoproj.io api in namespace shop is left out: the API version of its kind is not known here"}, c.problems)
	var out, errOut bytes.Buffer
	require.NoError(t, c.print(&out, &errOut))
	require.Contains(t, errOut.String(), "! Rollout.argoproj.io api")
	plugintest.InTheDocs(t, "create -A", out.String())
	parts := strings.Split(out.String(), "---\n")
	require.Len(t, parts, 2)
	var read vpav1.VerticalPodAutoscaler
	require.NoError(t, yaml.UnmarshalStrict([]byte(parts[1]), &read))
	require.Equal(t, vpav1.UpdateModeOff, convert.Mode(&read))
	require.Equal(t, setKey, target.RefKey(read.Namespace, read.Spec.TargetRef))
}

func TestCreate_Policy(t *testing.T) {
	c := objects(t, workloadsNamed(frontKey, webKey, setKey), createOptions{Policy: "all", All: true})
	require.Empty(t, c.vpas)
	require.Equal(t, []string{"*"}, c.policy.Spec.Namespaces.Names)
	require.Equal(t, []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "StatefulSet"}}, c.policy.Spec.Workloads)
	problems, _ := convert.CheckPolicy(c.policy)
	require.Empty(t, problems)
	var out, errOut bytes.Buffer
	require.NoError(t, c.print(&out, &errOut))
	plugintest.InTheDocs(t, "create -A --policy=all", out.String())
	named := objects(t, workloadsNamed(frontKey, webKey), createOptions{Policy: "two", Named: true})
	require.Equal(t, []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment", Name: "front"}, {APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}, named.policy.Spec.Workloads)
	out.Reset()
	require.NoError(t, objects(t, nil, createOptions{Policy: "all"}).print(&out, &errOut))
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), "no workload without a VPA was found")
}

func TestCreate_KeepsExistingObjects(t *testing.T) {
	own := fake.NewSimpleClientset()
	c := objects(t, workloadsNamed(webKey), createOptions{})
	for _, want := range []string{"VPA shop/deployment-web: created\n", "VPA shop/deployment-web: exists already\n"} {
		var out bytes.Buffer
		require.NoError(t, c.apply(t.Context(), own, &out))
		require.Equal(t, want, out.String())
	}
	var out bytes.Buffer
	require.NoError(t, objects(t, workloadsNamed(webKey), createOptions{Policy: "p"}).apply(t.Context(), own, &out))
	require.Equal(t, "SizingPolicy p: created\n", out.String())
	own.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
	require.ErrorContains(t, c.apply(t.Context(), own, &out), "create VPA shop/deployment-web: forbidden")
}

func exportedAs(t *testing.T, form string, all sizeList) string {
	t.Helper()
	var out bytes.Buffer
	problems, err := writeSizes(&out, form, all)
	require.NoError(t, err)
	require.Empty(t, problems)
	return out.String()
}

func TestExport_OutputMatchesDocs(t *testing.T) {
	all := shopSizes(t, inventory.Selection{Names: []string{"deployment/web"}}, "vpa").sizes
	plugintest.InTheDocs(t, "export -n shop deployment/web", exportedAs(t, "patch", all))
	plugintest.InTheDocs(t, "export -n shop -o kustomize deployment/web", exportedAs(t, "kustomize", all))
	plugintest.InTheDocs(t, "export -n shop -o helm deployment/web", exportedAs(t, "helm", all))
	cron := &inventory.Workload{Key: target.Key{Namespace: "shop", Kind: "CronJob", Name: "report"}, Containers: []string{"a"}}
	sized := sizeList{{Container: "a", Target: plugintest.Resources("1", "1Gi"), workload: cron}}
	require.Contains(t, exportedAs(t, "patch", sized), "  jobTemplate:\n    spec:\n      template:\n        spec:\n          containers:\n          - name: a\n")
	require.Contains(t, exportedAs(t, "patch", sized), "apiVersion: batch/v1\n")
	var out bytes.Buffer
	problems, err := writeSizes(&out, "helm", sizeList{{Container: "a", Target: plugintest.Resources("1", "1Gi"), workload: &inventory.Workload{Key: ownKey, Containers: []string{"a"}}}})
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Empty(t, out.String(), "there is nothing to write")
}
