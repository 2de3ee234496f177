package explain

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
)

// Users with permissions in one namespace cannot list the cluster-scoped SizingPolicies.
func TestStatus_WithoutPermissionForPolicies(t *testing.T) {
	s := plugintest.NewShop()
	s.Pods["web-1-a"].Spec.Containers[0].Resources.Requests = plugintest.Resources("2", "200Mi")
	kube, own := s.Clients()
	plugintest.Forbid(&own.Fake, "sizingpolicies")
	answerSkips(t, kube, map[reason.Reason][]string{reason.NodeFull: {"web-1-b"}})
	answerPod(t, kube, &explanation.Pod{UID: "web-1-b", VPA: "deployment-web", Mode: "Off", Skip: explanation.NewSkip(reason.NodeFull)})

	status, err := statusOf(t.Context(), own, request(t, s, kube, ""), "")
	require.NoError(t, err)
	require.Len(t, status.Workloads, 2)
	require.Len(t, status.Problems, 1)
	require.Contains(t, status.Problems[0], plugintest.PoliciesForbidden)

	pod, err := whyPod(t.Context(), own, request(t, s, kube, "web-1-b"))
	require.NoError(t, err)
	require.Equal(t, reason.NodeFull, pod.Reason)
	require.Len(t, pod.Problems, 1)
	require.Contains(t, pod.Problems[0], plugintest.PoliciesForbidden)

	var out bytes.Buffer
	require.NoError(t, printPod(t.Context(), own, request(t, s, kube, "web-1-b"), &out))
	require.Contains(t, out.String(), "! "+plugintest.PoliciesForbidden)
	require.Contains(t, squeezed(out.String()), " skipped NodeFull: ")
}

func TestStatus_FailsIfPoliciesCannotBeListed(t *testing.T) {
	s := plugintest.NewShop()
	kube, own := s.Clients()
	own.PrependReactor("list", "sizingpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	_, err := statusOf(t.Context(), own, request(t, s, kube, ""), "")
	require.EqualError(t, err, "list SizingPolicies: connection refused")
}
