package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The webhook's port, which is what readiness asks, stays shut until the caches
// are filled: here the API server answers, but gives no list.
func TestD11NothingIsServedBeforeTheCachesAreFilled(t *testing.T) {
	asked := make(chan struct{}, 1)
	apiServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = fmt.Fprint(w, `{"major":"1","minor":"36"}`)
			return
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	defer apiServer.Close()
	config := Default()
	config.Kube.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config.Kube.Kubeconfig, fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, apiServer.URL), 0o600))
	config.Serving.Address = "127.0.0.1:0"
	port := freePort(t)
	_, err := fmt.Sscan(port, &config.Port)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, config) }()
	<-asked
	require.Never(t, func() bool {
		connection, err := net.Dial("tcp", "127.0.0.1:"+port)
		return err == nil && connection.Close() == nil
	}, time.Second, 20*time.Millisecond)
	stop()
	t.Logf("told to end: %v", <-ended)
}
