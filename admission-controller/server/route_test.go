package server

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/process"
)

type directory struct {
	process.OS

	asked *string
	hosts map[string][]string
}

func (d directory) LookupHost(_ context.Context, host string) ([]string, error) {
	*d.asked = host
	if found := d.hosts[host]; found != nil {
		return found, nil
	}
	return nil, errors.New("no such host")
}

func TestServiceProbe_TargetsAddressOfAPIServer(t *testing.T) {
	asked := ""
	hosts := directory{asked: &asked, hosts: map[string][]string{
		"vpa-webhook.kube-system.svc": {"10.0.0.9", "10.0.0.10"},
		"vpa-webhook.one.svc":         {"10.0.0.11"},
	}}
	way := func(change func(*ServiceProbe)) (string, bool) {
		w := ServiceProbe{Service: "vpa-webhook", Host: "vpa-webhook.kube-system.svc", Environment: hosts}
		change(&w)
		route, ok := w.Target(t.Context(), []byte("CA"))
		require.Equal(t, w.Host, route.Host)
		require.Equal(t, "CA", string(route.CAs))
		return route.Address, ok
	}
	address, ok := way(func(*ServiceProbe) {})
	require.True(t, ok)
	require.Equal(t, "10.0.0.9:443", address)
	require.Equal(t, "vpa-webhook.kube-system.svc", asked)

	address, ok = way(func(w *ServiceProbe) { w.Host = "vpa-webhook.one.svc" })
	require.True(t, ok)
	require.Equal(t, "10.0.0.11:443", address)

	_, ok = way(func(w *ServiceProbe) { w.Foreign = true })
	require.False(t, ok, "who registers it may have another Service, or port")
	_, ok = way(func(w *ServiceProbe) { w.Service, w.Host = "my-hook", "my-hook.kube-system.svc" })
	require.False(t, ok, "a name that nobody knows says nothing about the webhook")
	t.Setenv("MY_HOOK_SERVICE_HOST", "fd00::9")
	address, ok = way(func(w *ServiceProbe) { w.Service, w.Host = "my-hook", "my-hook.kube-system.svc" })
	require.True(t, ok)
	require.Equal(t, "[fd00::9]:443", address, "pods know the Services of their namespace without DNS, too")

	address, ok = way(func(w *ServiceProbe) { w.URL = "https://hook.example.com" })
	require.True(t, ok)
	require.Equal(t, "hook.example.com:443", address)
	address, _ = way(func(w *ServiceProbe) { w.URL = "https://10.1.2.3:9443" })
	require.Equal(t, "10.1.2.3:9443", address)
}
