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
	for name, rest := range map[string]func() rest.Interface{
		"admissionregistration": func() rest.Interface { return clients.Kube.AdmissionregistrationV1().RESTClient() },
		"apps":                  func() rest.Interface { return clients.Kube.AppsV1().RESTClient() },
		"batch":                 func() rest.Interface { return clients.Kube.BatchV1().RESTClient() },
		"coordination":          func() rest.Interface { return clients.Kube.CoordinationV1().RESTClient() },
		"core":                  func() rest.Interface { return clients.Kube.CoreV1().RESTClient() },
		"policy":                func() rest.Interface { return clients.Kube.PolicyV1().RESTClient() },
	} {
		require.NotPanics(t, func() { require.NotNil(t, rest()) }, name)
	}
}
