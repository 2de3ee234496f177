package client

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// The client of a missing group is a nil interface, which panics on first use.
func TestNew_CreatesClientForEveryGroup(t *testing.T) {
	clients, err := New(&rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	for _, tc := range []struct {
		name   string
		client func() rest.Interface
	}{
		{name: "admissionregistration", client: func() rest.Interface { return clients.Kube.AdmissionregistrationV1().RESTClient() }},
		{name: "apps", client: func() rest.Interface { return clients.Kube.AppsV1().RESTClient() }},
		{name: "batch", client: func() rest.Interface { return clients.Kube.BatchV1().RESTClient() }},
		{name: "coordination", client: func() rest.Interface { return clients.Kube.CoordinationV1().RESTClient() }},
		{name: "core", client: func() rest.Interface { return clients.Kube.CoreV1().RESTClient() }},
		{name: "policy", client: func() rest.Interface { return clients.Kube.PolicyV1().RESTClient() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.NotPanics(t, func() { require.NotNil(t, tc.client()) })
		})
	}
}
