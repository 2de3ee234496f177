// Package server is the HTTPS side of the webhook: it reads AdmissionReviews,
// calls the Handler of their resource and writes the answers.
//
// It never stands in the way: what it cannot read or does not know is allowed unchanged, and so is a request whose
// handler panics. Every answer is counted by resource and status, and every problem by its cause, through a Recorder.
//
// Of a review it decodes only what the handlers ask for, with bounds. Beater keeps the
// heartbeat Lease of the webhook as long as it can reach itself.
//
// It has its own mux, so nothing another package registered is reachable, and it bounds the size and the duration of a
// request. It reads no more of pods and VPAs than the handlers need; these decide, and are in ../handlers.go.
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

// Config is what a Server is built from.
type Config struct {
	Environment process.Environment
	Port        int // of all addresses
	TLS         *tls.Config
	Handlers    []Handler
	Recorder    Recorder
	Callers     Callers
	// Drain is how long the server still answers after its context ended, so
	// that the cluster can take this replica out of the Service first.
	Drain time.Duration
}

// Server answers admission requests on all paths and "OK" on ProbePath.
type Server struct {
	config   Config
	listener net.Listener
}

// ProbePath is answered without an admission request.
const ProbePath = "/probe"

// Bounds of the connections. API servers have as many as they have reviews in progress, mostly below ten. Timeouts of
// the probe connection are multiples of the 10 s heartbeat, so that the runtime wakes up less often.
const (
	// firstTime is for the first byte of a request. API servers open connections ahead and keep
	// unused ones for 90 s: if the webhook closed one first, it might lose a request.
	firstTime  = 100 * time.Second
	bodyTime   = 20 * time.Second
	chunkTime  = 2 * time.Second  // for each doubling of a large body; less than a review waits for memory
	answerTime = 40 * time.Second // the API server waits 30 s at most
	idleTime   = 3 * time.Minute
	// probeIdleTime is for connections without a review: more than the two minutes between two probes of the own port.
	probeIdleTime = 150 * time.Second
	endTime       = 10 * time.Second // for open requests at the end
	restTime      = 10 * time.Second // without a request, before the end closes a connection
	// maxConnections and connectionShares leave a part of the memory limit to the metrics port.
	maxConnections   = 1000
	connectionShares = 7
)

// New returns a server that does not listen yet.
func New(config Config) *Server { return &Server{config: config} }

// Listen opens the port, so that a port in use is known before anything else starts.
func (s *Server) Listen() error {
	listener, err := s.config.Environment.Listen("tcp", ":"+strconv.Itoa(s.config.Port))
	if err != nil {
		return fmt.Errorf("serve the webhook on --port=%d: %w", s.config.Port, err)
	}
	s.listener = listener
	return nil
}

// Close gives the port back if Run was never called.
func (s *Server) Close() error { return s.listener.Close() }

// Handler returns what the server answers with.
func (s *Server) Handler(log klog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ProbePath, func(w http.ResponseWriter, _ *http.Request) {
		// A client that went away needs no answer.
		_, _ = io.WriteString(w, "OK")
	})
	mux.Handle("/", &reviewer{
		handlers: s.config.Handlers, recorder: s.config.Recorder, callers: s.config.Callers, log: log, decodeRequest: DecodeRequest,
		memory: newMemory(largeBodies, MaxBody), answers: newSlots(answeredAtOnce),
	})
	return mux
}

// evicted counts connections that are closed in favor of others.
type evicted struct{ Recorder }

func (e evicted) Inc() { e.Problem(CauseConnection) }

type encrypted struct{ *tls.Config }

func (e encrypted) Server(c net.Conn) *tls.Conn { return tls.Server(c, e.Config) }

// Run serves until ctx ends, goes on for the drain time, and lets open requests end. Listen must have been called.
func (s *Server) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	config := s.config.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	if s.config.Callers.CAFile != "" {
		s.config.Callers.demand(config)
	}
	log.V(1).Info("Serving the webhook", "address", s.listener.Addr().String())
	port := serving.Port{
		Listener: s.listener,
		TLS:      encrypted{config},
		Handler:  s.Handler(log),
		Bounds: serving.Bounds{
			Connections: maxConnections, MemoryPart: connectionShares,
			FirstByte: firstTime, Body: bodyTime, Answer: answerTime, Idle: idleTime, ProbeIdle: probeIdleTime,
			Drain: s.config.Drain, Rest: restTime, End: endTime,
		},
		Evicted: evicted{s.config.Recorder},
	}
	if err := port.Run(ctx); err != nil {
		return fmt.Errorf("serve the webhook on --port=%d: %w", s.config.Port, err)
	}
	return nil
}

// StartGrace is how long a program that is not ready yet says so. The liveness probe asks the same path, in our
// manifest and in that of the reference, and gives up with the third failure, 25 seconds after the start at the
// earliest. Any longer, or just as long, could restart a program that waits for a slow API server.
const StartGrace = 20 * time.Second

// silence is the longest time without an answered probe that counts as healthy.
const silence = 5 * time.Minute

// Health is the state behind /health-check.
type Health struct {
	started time.Time
	ready   atomic.Bool
	probes  *serving.Health
}

// NewHealth returns the state of a program that starts.
func NewHealth(started time.Time) *Health {
	return &Health{started: started, probes: serving.NewHealth(silence)}
}

// Alive is called after each probe that the webhook answered.
func (h *Health) Alive() {
	if !h.ready.Swap(true) {
		h.probes.Activate()
	}
	h.probes.Tick()
}

var errStarting = errors.New("the webhook does not answer yet")

// Check fails while the webhook starts, for at most StartGrace, and when it has not answered its own probe for long.
func (h *Health) Check() error {
	if !h.ready.Load() {
		if time.Since(h.started) < StartGrace {
			return errStarting
		}
		return nil
	}
	return h.probes.Check()
}

// Callers says who may ask for reviews. The zero value lets anybody.
type Callers struct {
	CAFile string   // CAs (PEM) of client certificates; empty: no certificate is asked for
	Names  []string // common names of them; empty: any
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

// demand makes connections ask for a certificate. One that has none can still ask for ProbePath, as the kubelet does;
// one with a wrong one is refused. The file is read for each connection, so that it may change at any time.
func (c Callers) demand(config *tls.Config) {
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
	between := x509.NewCertPool()
	for _, issuer := range chain[1:] {
		between.AddCert(issuer)
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := chain[0].Verify(options); err != nil {
		return fmt.Errorf("client certificate of %q: %w", chain[0].Subject.CommonName, err)
	}
	if len(c.Names) > 0 && !slices.Contains(c.Names, chain[0].Subject.CommonName) {
		return fmt.Errorf("client certificate is of %q, must be of %s", chain[0].Subject.CommonName, strings.Join(c.Names, " or "))
	}
	return nil
}

var errNoClientCertificate = errors.New("the client has no certificate, which --webhook-client-ca-file demands: give the API server one in its admission configuration")

// permits reports whether a request came over a connection that may ask for reviews.
func (c Callers) permits(request *http.Request) bool {
	return c.CAFile == "" || request.TLS != nil && len(request.TLS.PeerCertificates) > 0
}
