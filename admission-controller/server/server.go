// Package server serves the admission webhook over HTTPS: it reads AdmissionReviews, calls the
// Handler of their resource and writes the answers.
//
// It fails open: an unknown or undecodable review is allowed unchanged, and so is one whose handler
// panics. A body that cannot be read gets an HTTP error, which failurePolicy Ignore allows. A busy
// server rejects objects of a Handler with Guards. A Recorder counts answers and problems.
//
// The server decodes only the required members of a review, and bounds the size and the duration of
// each request. It has its own mux, so handlers that other packages register are unreachable.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
)

// Config holds the settings of a Server.
type Config struct {
	Environment process.Environment
	Port        int // on all addresses
	TLS         *tls.Config
	Handlers    []Handler
	Recorder    Recorder
	Callers     Callers
	// Drain is how long to serve after the context ended, until the Service drops this replica.
	Drain time.Duration
}

// Server answers admission requests on all paths and "OK" on ProbePath.
type Server struct {
	config   Config
	listener net.Listener
}

// ProbePath is answered without an admission request.
const ProbePath = "/probe"

// Limits of connections. API servers open one for each review, mostly below ten. Timeouts of probes
// are multiples of the 10 s heartbeat, so that the runtime wakes up less often.
const (
	// firstByteTimeout exceeds the 90 s for which API servers keep unused connections: closing one
	// earlier might lose a request.
	firstByteTimeout = 100 * time.Second
	bodyTimeout      = 20 * time.Second
	chunkTimeout     = 2 * time.Second  // per doubling of a large body, below a memory wait
	answerTimeout    = 40 * time.Second // the API server waits 30 s at most
	idleTimeout      = 3 * time.Minute
	// probeIdleTimeout, without a review, exceeds the two minutes between two self-probes.
	probeIdleTimeout = 150 * time.Second
	shutdownTimeout  = 10 * time.Second // for open requests at shutdown
	shutdownIdle     = 10 * time.Second // idle time before shutdown closes a connection
	// maxConnections and connectionShares leave part of the memory limit to the metrics port.
	maxConnections   = 1000
	connectionShares = 7
)

// New returns a server that does not listen yet.
func New(config Config) *Server { return &Server{config: config} }

// Listen opens the port, so that a port conflict is detected before anything else starts.
func (s *Server) Listen() error {
	listener, err := s.config.Environment.Listen("tcp", ":"+strconv.Itoa(s.config.Port))
	if err != nil {
		return fmt.Errorf("serve the webhook on --port=%d: %w", s.config.Port, err)
	}
	s.listener = listener
	return nil
}

// Close closes the port unless Run was called.
func (s *Server) Close() error { return s.listener.Close() }

// Handler returns the HTTP handler of all paths.
func (s *Server) Handler(log klog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ProbePath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "OK")
	})
	mux.Handle("/", &reviewer{
		handlers: s.config.Handlers, recorder: s.config.Recorder, callers: s.config.Callers, log: log, decodeRequest: DecodeRequest,
		memory: newMemory(maxLargeBytes, MaxBody), answers: newSlots(maxConcurrentReviews),
	})
	return mux
}

type evictionCounter struct{ Recorder }

func (e evictionCounter) Inc() { e.Problem(CauseConnection) }

type tlsServer struct{ *tls.Config }

func (e tlsServer) Server(c net.Conn) *tls.Conn { return tls.Server(c, e.Config) }

// Run serves until ctx ends and for Drain, then lets open requests finish. It requires Listen.
func (s *Server) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	config := s.config.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	if s.config.Callers.CAFile != "" {
		s.config.Callers.requireCertificate(config)
	}
	log.V(1).Info("Serving the webhook", "address", s.listener.Addr().String())
	port := serving.Port{
		Listener: s.listener,
		TLS:      tlsServer{config},
		Handler:  s.Handler(log),
		Bounds: serving.Bounds{
			Connections: maxConnections, MemoryPart: connectionShares,
			FirstByte: firstByteTimeout, Body: bodyTimeout, Answer: answerTimeout, Idle: idleTimeout, ProbeIdle: probeIdleTimeout,
			Drain: s.config.Drain, Rest: shutdownIdle, End: shutdownTimeout,
		},
		Evicted: evictionCounter{s.config.Recorder},
	}
	if err := port.Run(ctx); err != nil {
		return fmt.Errorf("serve the webhook on --port=%d: %w", s.config.Port, err)
	}
	return nil
}

// StartGrace is how long a starting program reports that it is not ready. Liveness probes use the
// same path and fail at the earliest 25 s after the start, so a time that long could restart a
// program that waits for a slow API server.
const StartGrace = 20 * time.Second

// maxProbeAge is the longest time without an answered probe that counts as healthy.
const maxProbeAge = 5 * time.Minute

// Health is the state behind /health-check.
type Health struct {
	started time.Time
	ready   atomic.Bool
	probes  *serving.Health
}

// NewHealth returns the state of a program that starts.
func NewHealth(started time.Time) *Health {
	return &Health{started: started, probes: serving.NewHealth(maxProbeAge)}
}

// Alive is called after each probe that the webhook answered.
func (h *Health) Alive() {
	if !h.ready.Swap(true) {
		h.probes.Activate()
	}
	h.probes.Tick()
}

var errStarting = errors.New("the webhook does not answer yet")

// Check fails until the first self-probe, for StartGrace at most, and maxProbeAge after the last.
func (h *Health) Check() error {
	if !h.ready.Load() {
		if time.Since(h.started) < StartGrace {
			return errStarting
		}
		return nil
	}
	return h.probes.Check()
}

// Callers restricts the clients that may send reviews. The zero value allows any client.
type Callers struct {
	CAFile string   // CAs (PEM) of client certificates, empty: not required
	Names  []string // allowed common names, empty: any
}

// Load reads the CAs.
func (c Callers) Load() (*x509.CertPool, error) {
	content, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CAs of the API server's client certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("read the CAs of the API server's client certificate: %s holds no certificate in PEM form", c.CAFile)
	}
	return pool, nil
}

// requireCertificate rejects wrong client certificates. Clients without one can still use
// ProbePath, as the kubelet does. The CA file is read for each connection, so it may change.
func (c Callers) requireCertificate(config *tls.Config) {
	config.ClientAuth = tls.RequestClientCert
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		pool, err := c.Load()
		if err != nil {
			return err
		}
		return c.verify(state.PeerCertificates, pool)
	}
}

func (c Callers) verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	intermediates := x509.NewCertPool()
	for _, issuer := range chain[1:] {
		intermediates.AddCert(issuer)
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := chain[0].Verify(options); err != nil {
		return fmt.Errorf("client certificate of %q: %w", chain[0].Subject.CommonName, err)
	}
	if len(c.Names) > 0 && !slices.Contains(c.Names, chain[0].Subject.CommonName) {
		return fmt.Errorf("client certificate has common name %q, must be %s", chain[0].Subject.CommonName, strings.Join(c.Names, " or "))
	}
	return nil
}

var errNoClientCertificate = errors.New("missing client certificate, required by --webhook-client-ca-file: configure one for the API server in its admission configuration")

func (c Callers) permits(request *http.Request) bool {
	return c.CAFile == "" || request.TLS != nil && len(request.TLS.PeerCertificates) > 0
}
