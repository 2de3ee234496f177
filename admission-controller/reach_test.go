package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestD11TheHeartbeatGoesTheWayOfTheAPIServer(t *testing.T) {
	t.Setenv("NAMESPACE", "kube-system")
	asked := ""
	resolve := func(_ context.Context, host string) ([]string, error) {
		if asked = host; host == "vpa-webhook.kube-system.svc" {
			return []string{"10.0.0.9", "10.0.0.10"}, nil
		}
		return nil, errors.New("no such host")
	}
	way := func(change func(*Config)) (string, bool) {
		config := Default()
		change(&config)
		route, ok := reach{config: config, resolve: resolve, trusted: func() []byte { return []byte("CA") }}.route(t.Context())
		require.Equal(t, config.host(), route.Host)
		require.Equal(t, "CA", string(route.CAs))
		return route.Address, ok
	}
	address, ok := way(func(*Config) {})
	require.True(t, ok)
	require.Equal(t, "10.0.0.9:443", address)
	require.Equal(t, "vpa-webhook.kube-system.svc", asked)

	_, ok = way(func(c *Config) { c.Register = false })
	require.False(t, ok, "who registers it may have another Service, or port")
	_, ok = way(func(c *Config) { c.Service = "my-hook" })
	require.False(t, ok, "a name that nobody knows says nothing about the webhook")
	t.Setenv("MY_HOOK_SERVICE_HOST", "fd00::9")
	address, ok = way(func(c *Config) { c.Service = "my-hook" })
	require.True(t, ok)
	require.Equal(t, "[fd00::9]:443", address, "pods know the Services of their namespace without DNS, too")

	address, ok = way(func(c *Config) { c.ByURL, c.WebhookAddress = true, "https://hook.example.com" })
	require.True(t, ok)
	require.Equal(t, "hook.example.com:443", address)
	address, _ = way(func(c *Config) { c.ByURL, c.WebhookAddress, c.WebhookPort = true, "https://10.1.2.3", "9443" })
	require.Equal(t, "10.1.2.3:9443", address)
}
