// Package serving is what every program has around its loop: the ticks, and a small
// HTTP server with /metrics, /health-check and, if asked for, /debug/pprof/.
//
// RunEvery makes passes at an interval, and early ones when it is woken. Server serves a
// registry and a health function, Health watches that passes of
// a loop keep ending, NewRegistry returns a registry with the process and Go
// runtime metrics, and Version says which build runs.
//
// It uses its own mux, so that nothing another package registers on the default
// one, as net/http/pprof does, is ever reachable. It serves no admission requests:
// those have their own server with TLS.
package serving

import (
	"context"
	"errors"
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
)

// NewRegistry returns a registry that holds the metrics of the process and of
// the Go runtime.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// Server answers /metrics, /health-check and pages of the program on one address.
type Server struct {
	address  string
	handler  *http.ServeMux
	listener net.Listener
}

// New returns a server for the address host:port that shows the registry and
// answers /health-check with "OK", or with status 500 and the error that health
// returns. With profiling it also serves /debug/pprof/.
func New(address string, profiling bool, registry *prometheus.Registry, health func() error) *Server {
	mux := http.NewServeMux()
	mux.Handle("/metrics", few(promhttp.InstrumentMetricHandler(registry, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))))
	mux.HandleFunc("/health-check", func(w http.ResponseWriter, _ *http.Request) {
		if err := health(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		// A client that went away needs no answer.
		_, _ = w.Write([]byte("OK"))
	})
	if profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return &Server{address: address, handler: mux}
}

// Handle adds a page to those that the server answers, before it runs. Few are answered at once.
func (s *Server) Handle(path string, handler http.Handler) { s.handler.Handle(path, few(handler)) }

const (
	// atOnce is how many requests for a large page are answered at the same time: a page takes megabytes in
	// a large cluster, and whoever reaches the port may ask.
	atOnce = 4
	// answerTime is how long a client may take to read an answer.
	answerTime = 30 * time.Second
)

// few refuses requests with status 503 while others are answered.
func few(handler http.Handler) http.Handler {
	places := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			// Only writers of tests know no deadline.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
			handler.ServeHTTP(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d requests for this page are answered at the moment; try again", atOnce), http.StatusServiceUnavailable)
		}
	})
}

// Listen opens the port, so that a port in use is known before anything else
// starts. Run calls it if nobody did.
func (s *Server) Listen() error {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("serve metrics and health on --address=%s: %w", s.address, err)
	}
	s.listener = listener
	return nil
}

// Address returns where the server listens, or nil before Listen.
func (s *Server) Address() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// shutdownTime is how long open requests may take to end when the context ends.
const shutdownTime = 2 * time.Second

// Run serves until ctx ends; then it lets open requests end and returns nil. It
// returns an error when the port cannot be opened or fails later.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if err := s.Listen(); err != nil {
			return err
		}
	}
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.listener) }()
	klog.FromContext(ctx).V(1).Info("Serving metrics and health", "address", s.listener.Addr().String())
	select {
	case err := <-ended:
		return fmt.Errorf("serve metrics and health on --address=%s: %w", s.address, err)
	case <-ctx.Done():
	}
	quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if err := server.Shutdown(quiet); err != nil {
		// A profile may run longer than we are willing to wait.
		return errors.Join(server.Close(), drain(ended))
	}
	return drain(ended)
}

// RunWith serves while work goes on. When one of the two fails, or ctx ends, both are made to
// end; the first error is returned.
func (s *Server) RunWith(ctx context.Context, work func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return Together(ctx, s.Run, func(ctx context.Context) error {
		defer stop()
		return work(ctx)
	})
}

// drain waits for Serve to return; that it was closed is what we wanted.
func drain(ended <-chan error) error {
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// release is the version of a release. The linker writes it: hack/images/build.
var release string

// Version describes the running build: the version of its release, or that of the module
// where the build had one, else "development", then the commit and the Go version if known.
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
