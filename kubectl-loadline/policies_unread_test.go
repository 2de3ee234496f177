package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/pkg/core/reason"
)

const uncounted = "nothing here counts what SizingPolicies say: list SizingPolicies: sizingpolicies is forbidden: "

// Who edits one namespace may not list SizingPolicies, which have none.
func TestWithoutTheRightToListPoliciesAnAnswerGoesOn(t *testing.T) {
	s := newShop()
	s.pods["web-1-a"].Spec.Containers[0].Resources.Requests = sizes("2", "200Mi")
	kube, own := s.clients()
	refuse(&own.Fake, "sizingpolicies")
	updaterSays(t, kube, map[reason.Reason][]string{reason.NodeFull: {"web-1-b"}})

	all, err := readWorkloads(t.Context(), own, s.question(t, kube, ""), sizesScope{Selector: labels.Everything()})
	require.NoError(t, err)
	require.Len(t, all.workloads, 2)
	require.Len(t, all.problems, 1)
	require.Contains(t, all.problems[0], uncounted)

	status, err := statusOf(t.Context(), own, s.question(t, kube, ""), statusScope{Updater: "kube-system"})
	require.NoError(t, err)
	require.Len(t, status.Workloads, 2)
	require.Len(t, status.Problems, 1)
	require.Contains(t, status.Problems[0], uncounted)

	pod, err := statusOfPod(t.Context(), own, s.question(t, kube, "web-1-b"), "kube-system")
	require.NoError(t, err)
	require.Equal(t, reason.NodeFull, pod.Reason)
	require.Len(t, pod.Problems, 1)
	require.Contains(t, pod.Problems[0], uncounted)

	var out bytes.Buffer
	require.NoError(t, printPod(t.Context(), own, s.question(t, kube, "web-1-b"), "kube-system", &out))
	require.Contains(t, out.String(), "! "+uncounted)
	require.Contains(t, squeezed(out.String()), " left alone NodeFull: ")
}

// Another error is not a lack of rights, and what follows from the policies is not known.
func TestPoliciesThatCannotBeReadEndACommand(t *testing.T) {
	s := newShop()
	kube, own := s.clients()
	own.PrependReactor("list", "sizingpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	_, err := readWorkloads(t.Context(), own, s.question(t, kube, ""), sizesScope{Selector: labels.Everything()})
	require.EqualError(t, err, "list SizingPolicies: connection refused")
	_, err = statusOf(t.Context(), own, s.question(t, kube, ""), statusScope{Updater: "kube-system"})
	require.EqualError(t, err, "list SizingPolicies: connection refused")
}
