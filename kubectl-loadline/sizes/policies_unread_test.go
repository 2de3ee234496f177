package sizes

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
)

// Users with permissions in one namespace cannot list the cluster-scoped SizingPolicies.
func TestReadWorkloads_WithoutPermissionForPolicies(t *testing.T) {
	s := plugintest.NewShop()
	s.Pods["web-1-a"].Spec.Containers[0].Resources.Requests = plugintest.Resources("2", "200Mi")
	kube, own := s.Clients()
	plugintest.Forbid(&own.Fake, "sizingpolicies")

	all, err := readWorkloads(t.Context(), own, request(t, s, kube, ""), inventory.Selection{Selector: labels.Everything()})
	require.NoError(t, err)
	require.Len(t, all.workloads, 2)
	require.Len(t, all.problems, 1)
	require.Contains(t, all.problems[0], plugintest.PoliciesForbidden)
}

func TestReadWorkloads_FailsIfPoliciesCannotBeListed(t *testing.T) {
	s := plugintest.NewShop()
	kube, own := s.Clients()
	own.PrependReactor("list", "sizingpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	_, err := readWorkloads(t.Context(), own, request(t, s, kube, ""), inventory.Selection{Selector: labels.Everything()})
	require.EqualError(t, err, "list SizingPolicies: connection refused")
}
