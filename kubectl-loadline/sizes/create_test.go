package sizes

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/target"
)

func objects(t *testing.T, workloads []*inventory.Workload, want createOptions) *manifests {
	t.Helper()
	c, err := objectsFor(workloads, want)
	require.NoError(t, err)
	return c
}

// A policy that may reach mode Canary must not change the cluster DNS or Loadline itself.
func TestCreate_PolicySkipsSystemNamespaces(t *testing.T) {
	var (
		dns   = target.Key{Namespace: "kube-system", Kind: "Deployment", Name: "coredns"}
		proxy = target.Key{Namespace: "kube-system", Kind: "DaemonSet", Name: "proxy"}
		info  = target.Key{Namespace: "kube-public", Kind: "Deployment", Name: "info"}
		lease = target.Key{Namespace: "kube-node-lease", Kind: "Deployment", Name: "lease"}
		own   = target.Key{Namespace: "loadline", Kind: "Deployment", Name: "updater"}
	)
	all := workloadsNamed(dns, proxy, info, lease, own, webKey, setKey)
	kinds := []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "StatefulSet"}}
	for _, tc := range []struct {
		name       string
		options    createOptions
		namespaces []string
		kinds      int
	}{
		{name: "all workloads", options: createOptions{All: true}, namespaces: []string{"*"}, kinds: 2},
		{name: "workloads with a label", options: createOptions{All: true, Labelled: true}, namespaces: []string{"data", "shop"}, kinds: 2},
		{name: "workloads with names", options: createOptions{All: true, Named: true}, namespaces: []string{"data", "shop"}, kinds: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.options.Policy, tc.options.Programs = "all", "loadline"
			made := objects(t, all, tc.options)
			require.Equal(t, tc.namespaces, made.policy.Spec.Namespaces.Names)
			require.Len(t, made.policy.Spec.Workloads, tc.kinds)
			if !tc.options.Named {
				require.Equal(t, kinds, made.policy.Spec.Workloads, "no DaemonSet is left")
			}
			for i, namespace := range []string{"kube-node-lease", "kube-public", "kube-system", "loadline"} {
				require.Equal(t, "namespace "+namespace+" is left out, as it is one of the system or of the programs: -n selects it",
					made.problems[i])
			}

			// evaluate the policy as the programs do in mode Canary
			made.policy.Spec.Rollout.Mode = new(loadlinev1alpha1.RolloutModeCanary)
			set := fleet.NewSet([]fleet.Policy{convert.Policy(made.policy)}, fleet.Options{OwnNamespace: "loadline"})
			for _, w := range all {
				decided := set.Decide(fleet.Workload{Namespace: w.Key.Namespace, Kind: w.Key.Kind, Name: w.Key.Name})
				require.Equal(t, w.Key.Namespace == "shop" || w.Key.Namespace == "data", decided.Policy != nil, w.Key)
			}
		})
	}
	require.Len(t, objects(t, all, createOptions{All: true, Programs: "loadline"}).vpas, 7, "one of mode Off changes nothing")
	require.Equal(t, []string{"kube-system"}, objects(t, workloadsNamed(dns), createOptions{Policy: "dns"}).policy.Spec.Namespaces.Names, "somebody asked for it")
	none := objects(t, workloadsNamed(dns), createOptions{Policy: "all", All: true})
	var out, errOut bytes.Buffer
	require.NoError(t, none.print(&out, &errOut))
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), "! namespace kube-system is left out, ")
}

func TestCreate_PolicyOfAllNamespaces(t *testing.T) {
	s := plugintest.NewShop()
	s.More = append(s.More, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "proxy"}})
	s.Policy.Spec.Namespaces.Names = []string{"other"}
	kube, own := s.Clients()
	for _, name := range []string{"deployment-front", "deployment-web"} {
		require.NoError(t, own.AutoscalingV1().VerticalPodAutoscalers("shop").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	q := request(t, s, kube, "")
	q.Namespace = ""
	found, err := readWorkloads(t.Context(), own, q, inventory.Selection{Selector: labels.Everything(), Unsized: true})
	require.NoError(t, err)
	require.Len(t, found.workloads, 3)
	c := objects(t, found.workloads, createOptions{Policy: "all", All: true, Programs: "kube-system"})
	require.Equal(t, []string{"*"}, c.policy.Spec.Namespaces.Names)
	require.Equal(t, []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}}, c.policy.Spec.Workloads)
}

func keys(kind string, n int, namespace string) (all []target.Key) {
	for i := range n {
		of := fmt.Sprintf("%s-%d", namespace, i)
		all = append(all, target.Key{Namespace: of, Kind: kind, Name: fmt.Sprintf("w%d", i)})
	}
	return all
}

func TestCreate_LimitsPolicySize(t *testing.T) {
	accepted := func(workloads []target.Key, want createOptions) *manifests {
		t.Helper()
		want.Policy = "all"
		c := objects(t, workloadsNamed(workloads...), want)
		problems, _ := convert.CheckPolicy(c.policy)
		require.Empty(t, problems)
		return c
	}
	refused := func(workloads []target.Key, want createOptions, says string) {
		t.Helper()
		want.Policy = "all"
		_, err := objectsFor(workloadsNamed(workloads...), want)
		require.ErrorContains(t, err, says)
	}
	labelled, named := createOptions{All: true, Labelled: true}, createOptions{All: true, Named: true}
	require.Len(t, accepted(keys("Deployment", 256, "n"), labelled).policy.Spec.Namespaces.Names, 256)
	refused(keys("Deployment", 257, "n"), labelled, "the policy would list 257 namespaces, and the API server takes 256: give -A without -l and without names, which selects all of them, ")
	require.Equal(t, []string{"*"}, accepted(keys("Deployment", 257, "n"), createOptions{All: true}).policy.Spec.Namespaces.Names)

	require.Len(t, accepted(keys("Deployment", 32, "n"), named).policy.Spec.Workloads, 32)
	refused(keys("Deployment", 33, "n"), named, "the policy would select 33 workloads by name, and the API server takes 32: write more than one policy, each with the names of fewer as arguments; "+
		"without names a policy selects all of the kinds CronJob, DaemonSet, Deployment, StatefulSet")
	require.Len(t, accepted(keys("Deployment", 33, "n"), createOptions{All: true}).policy.Spec.Workloads, 1)

	refused(keys("ReplicaSet", 33, "n"), createOptions{All: true}, "the policy would select 33 workloads by name, ")
	c := accepted(append(keys("ReplicaSet", 32, "n"), webKey), createOptions{All: true})
	require.Equal(t, []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}}, c.policy.Spec.Workloads)
	require.Equal(t, []string{"workloads of other kinds than CronJob, DaemonSet, Deployment, StatefulSet are left out: 32 can only be selected by name, and the API server takes 32 entries in a policy; " +
		"give names of fewer as arguments, for a policy of their own"}, c.problems)
}
