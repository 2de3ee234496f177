// Package serving serves HTTP on bounded ports and runs loops.
//
// All ports of all programs, including the webhook, are a Port. Server is a Port with /metrics,
// /health-check, pages of the program and, with profiling, /debug/pprof/. It has its own mux, so
// that handlers that another package registers on the default mux, such as net/http/pprof, are not
// reachable.
package serving

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/process"
)

// NewRegistry returns a registry with the metrics of the process and of the Go runtime.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// NewClosedConnections registers the counter of connections that a Server closes.
func NewClosedConnections(registry prometheus.Registerer) prometheus.Counter {
	closed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "loadline_closed_connections_total",
		Help: "Connections to the port that serves this metric, closed in favor of others or because their client read slowly.",
	})
	registry.MustRegister(closed)
	return closed
}

// Server serves /metrics, /health-check and pages of the program on one address.
type Server struct {
	address  string
	env      process.Environment
	handler  *http.ServeMux
	listener net.Listener
	closed   prometheus.Counter // connections closed in favor of others
}

// New returns a server for host:port with the metrics of the registry, and /health-check, which
// answers "OK", or status 500 with the error of health. profiling adds /debug/pprof/.
func New(env process.Environment, address string, profiling bool, registry *prometheus.Registry, health func() error) *Server {
	mux := http.NewServeMux()
	mux.Handle("/metrics", limitPage(promhttp.InstrumentMetricHandler(registry, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))))
	mux.HandleFunc("/health-check", func(w http.ResponseWriter, _ *http.Request) {
		if err := health(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("OK"))
	})
	if profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return &Server{address: address, env: env, handler: mux, closed: NewClosedConnections(registry)}
}

// Handle adds a page before Run. At most maxConcurrent requests for it are answered at once.
func (s *Server) Handle(path string, handler http.Handler) {
	s.handler.Handle(path, limitPage(handler))
}

// Listen opens the port, so that a port in use is detected early. Run calls it if necessary.
func (s *Server) Listen() error {
	listener, err := s.env.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("serve metrics and health on --address=%s: %w", s.address, err)
	}
	s.listener = listener
	return nil
}

// statusBounds are the bounds of a Server. Prometheus, the kubelet and the API server, as a proxy
// of users, have few connections and send at once.
var statusBounds = Bounds{
	Connections: 64, MemoryPart: 1,
	FirstByte: 10 * time.Second,
	Answer:    30 * time.Second,
	Idle:      2 * time.Minute, ProbeIdle: 2 * time.Minute,
	End: 2 * time.Second,
}

// Run serves until ctx ends and finishes open requests. An unusable port is an error.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if err := s.Listen(); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).V(1).Info("Serving metrics and health", "address", s.listener.Addr().String())
	port := Port{Listener: s.listener, Handler: s.handler, Bounds: statusBounds, Evicted: s.closed}
	if err := port.Run(ctx); err != nil {
		return fmt.Errorf("serve metrics and health on --address=%s: %w", s.address, err)
	}
	return nil
}

// RunWith serves while work runs. The first error, or the end of ctx, ends both.
func (s *Server) RunWith(ctx context.Context, work func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return Together(ctx, s.Run, func(ctx context.Context) error {
		defer stop()
		return work(ctx)
	})
}

// release is the version of a release. The linker writes it: hack/images/build.
var release string

// Version describes the running build: the version of its release or its module, else
// "development", then the commit and the Go version if known.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "development"
	}
	version := info.Main.Version
	switch {
	case release != "":
		version = release
	case version == "" || version == "(devel)":
		version = "development"
	}
	parts := []string{version}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
			parts = append(parts, setting.Value[:12])
		}
	}
	return strings.Join(append(parts, info.GoVersion), " ")
}
