package serving

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/process"
)

// Address returns the listen address of the server.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

func get(t *testing.T, s *Server, path string) (int, string) {
	response, err := http.Get("http://" + s.Address().String() + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// serve runs a server until the test ends and requires a clean shutdown.
func serve(t *testing.T, profiling bool, health func() error) *Server {
	s := New(process.OS{}, "127.0.0.1:0", profiling, NewRegistry(), health)
	require.NoError(t, s.Listen())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return s
}

func TestServer_ServesMetricsAndHealth(t *testing.T) {
	var problem error
	s := serve(t, false, func() error { return problem })
	code, body := get(t, s, "/health-check")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "OK", body)
	code, body = get(t, s, "/metrics")
	require.Equal(t, http.StatusOK, code)
	for _, name := range []string{"go_goroutines", "process_start_time_seconds", "promhttp_metric_handler_requests_total"} {
		require.Contains(t, body, name)
	}
	problem = errors.New("stuck")
	code, body = get(t, s, "/health-check")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Equal(t, "stuck\n", body)
}

func TestServer_ServesProfilesOnlyIfEnabled(t *testing.T) {
	fine := func() error { return nil }
	code, _ := get(t, serve(t, false, fine), "/debug/pprof/")
	require.Equal(t, http.StatusNotFound, code)
	s := serve(t, true, fine)
	for _, tc := range []struct{ name, path, want string }{
		{name: "index", path: "/debug/pprof/", want: "goroutine?debug=1"},
		{name: "command line", path: "/debug/pprof/cmdline", want: "serving.test"},
		{name: "goroutines", path: "/debug/pprof/goroutine?debug=1", want: "goroutine profile:"},
		{name: "heap", path: "/debug/pprof/heap?gc=1", want: "\x1f\x8b"},
		{name: "CPU", path: "/debug/pprof/profile?seconds=1", want: "\x1f\x8b"},
		{name: "trace", path: "/debug/pprof/trace?seconds=0.05", want: "go 1."},
		{name: "symbol", path: "/debug/pprof/symbol?0x1+notanaddress", want: "num_symbols: 1"},
		{name: "unknown profile", path: "/debug/pprof/no-such-profile", want: "Unknown profile"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, body := get(t, s, tc.path)
			if strings.Contains(tc.path, "no-such") {
				require.Equal(t, http.StatusNotFound, code)
			} else {
				require.Equal(t, http.StatusOK, code)
			}
			require.Contains(t, body, tc.want)
		})
	}
}

func TestServer_PortInUseIsClearError(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	err = New(process.OS{}, taken.Addr().String(), false, NewRegistry(), nil).Run(t.Context())
	require.ErrorContains(t, err, "serve metrics and health on --address="+taken.Addr().String())
	require.ErrorContains(t, err, "address already in use")
}

func TestHealth_ChecksOnlyActiveLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(5 * time.Minute)
		time.Sleep(time.Hour)
		require.NoError(t, h.Check(), "a standby is healthy")
		h.Activate()
		time.Sleep(5 * time.Minute)
		require.NoError(t, h.Check())
		time.Sleep(time.Second)
		require.EqualError(t, h.Check(), "no iteration has ended for 5m1s, maximum is 5m0s")
		h.Tick()
		require.NoError(t, h.Check())
	})
}

func TestVersion_ContainsGoVersion(t *testing.T) {
	require.True(t, strings.Contains(Version(), "go1."), Version())
}

func TestVersion_BeginsWithRelease(t *testing.T) {
	release = "v1.2.3"
	t.Cleanup(func() { release = "" })
	require.Regexp(t, `^v1\.2\.3 .*go1\.`, Version())
}

func TestServer_RunWithEndsServerAndWorkTogether(t *testing.T) {
	broken := errors.New("broken")
	run := func(ctx context.Context, work func(context.Context, *Server) error) error {
		s := New(process.OS{}, "127.0.0.1:0", false, NewRegistry(), func() error { return nil })
		require.NoError(t, s.Listen())
		return s.RunWith(ctx, func(ctx context.Context) error { return work(ctx, s) })
	}
	require.NoError(t, run(t.Context(), func(context.Context, *Server) error { return nil }), "work is done")
	require.ErrorIs(t, run(t.Context(), func(context.Context, *Server) error { return broken }), broken)
	require.ErrorContains(t, run(t.Context(), func(ctx context.Context, s *Server) error {
		_ = s.listener.Close() // makes the server fail
		<-ctx.Done()
		return ctx.Err()
	}), "serve metrics and health", "what failed first is returned")
	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, run(ctx, func(ctx context.Context, _ *Server) error { stop(); <-ctx.Done(); return nil }))
}

// The metric shows operators that clients of the metrics port lose connections to others.
func TestServer_CountsClosedConnections(t *testing.T) {
	s := serve(t, false, func() error { return nil })
	for range statusBounds.Connections/4 + 2 {
		connection, err := net.Dial("tcp", s.Address().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = connection.Close() })
	}
	require.Eventually(t, func() bool {
		_, page := get(t, s, "/metrics")
		return strings.Contains(page, "\nloadline_closed_connections_total ") && !strings.Contains(page, "\nloadline_closed_connections_total 0\n")
	}, 10*time.Second, 10*time.Millisecond)
}
