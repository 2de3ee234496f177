// Package server is the HTTPS side of the webhook: it reads AdmissionReviews,
// calls the Handler of their resource and writes the answers.
//
// It never stands in the way: what it cannot read or does not know is allowed
// unchanged, and so is a request whose handler panics. Every answer is counted
// by resource and status, and every problem by its cause, through a Recorder.
//
// Of a review it decodes only what the handlers ask for, with bounds. Beater keeps the
// heartbeat Lease of the webhook as long as it can reach itself.
//
// It has its own mux, so nothing another package registered is reachable, and
// it bounds the size and the duration of a request. It reads no more of pods and VPAs than
// the handlers need; these decide, and are in ../handlers.go.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Config is what a Server is built from.
type Config struct {
	Port     int // of all addresses
	TLS      *tls.Config
	Handlers []Handler
	Recorder Recorder
	Callers  Callers
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

// Time limits of one connection. Those of the connection on which the program probes itself are
// multiples of the 10 s between two heartbeats, by default: the runtime wakes also for a limit that
// was moved on since, and so it is awake then.
const (
	// firstTime is for a header. API servers open connections ahead, and keep for 90 s those
	// that they do not use: who closes one first may lose a request that is on its way.
	firstTime  = 100 * time.Second
	bodyTime   = 20 * time.Second
	chunkTime  = 2 * time.Second  // for each doubling of a large body; less than a review waits for memory
	answerTime = 40 * time.Second // the API server waits 30 s at most
	idleTime   = 3 * time.Minute
	// probeIdleTime is for connections without a review: more than the two minutes between
	// two probes of the own port.
	probeIdleTime = 150 * time.Second
	endTime       = 10 * time.Second // for open requests at the end
	// restTime is how long a connection must not have been used before the end closes it,
	// and how much longer the server drains for that at most.
	restTime = 10 * time.Second
)

// maxHeader is the largest header of a request in bytes.
const maxHeader = 64 << 10

// New returns a server that does not listen yet.
func New(config Config) *Server { return &Server{config: config} }

// Listen opens the port, so that a port in use is known before anything else
// starts.
func (s *Server) Listen() error {
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(s.config.Port))
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
		handlers: s.config.Handlers, recorder: s.config.Recorder, callers: s.config.Callers, log: log, reads: Request,
		memory: newMemory(largeBodies, MaxBody), answers: make(chan struct{}, answeredAtOnce),
	})
	return mux
}

// Run serves until ctx ends, goes on for the drain time, and lets open requests
// end. Listen must have been called.
func (s *Server) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	config := s.config.TLS.Clone()
	if s.config.Callers.CAFile != "" {
		s.config.Callers.demand(config)
	}
	var draining atomic.Bool
	open := newConnections(mostConnections, mostOfSource, evicts(log, s.config.Recorder))
	server := &http.Server{
		Handler:           parting(hurrying(s.Handler(log)), &draining),
		Protocols:         onlyHTTP1(),
		TLSConfig:         config,
		ConnContext:       open.attach,
		ConnState:         open.changed,
		ReadHeaderTimeout: firstTime,
		ReadTimeout:       bodyTime, // of a handshake; that of a body begins with hurrying
		WriteTimeout:      answerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          stdlog.New(lines{log, &throttle{}}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(s.listener, "", "") }()
	log.V(1).Info("Serving the webhook", "address", s.listener.Addr().String())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-ctx.Done()
		draining.Store(true)
		time.Sleep(s.config.Drain)
		open.await()
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the webhook on --port=%d: %w", s.config.Port, err)
	case <-drained:
	}
	quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := server.Shutdown(quiet); err != nil {
		return errors.Join(fmt.Errorf("end open requests: %w", err), server.Close())
	}
	return nil
}

// onlyHTTP1 leaves HTTP/2 out: the API server calls webhooks over HTTP/1.1, so that
// it comes to all replicas, and HTTP/2 would only be more to attack.
func onlyHTTP1() *http.Protocols {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return protocols
}

// parting ends each connection with its next answer once the server is draining.
// The client then opens another, which goes to another replica. Otherwise it would
// keep the connection until the end, and could write a request into it at the
// moment in which it is closed; that request would be lost.
func parting(h http.Handler, draining *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, request)
	})
}

// hurrying bounds how long a client may take for the body of a request, whether or not
// anybody reads it.
func hurrying(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		_ = limit(http.NewResponseController(w), time.Now().Add(bodyTime)) // fails where the connection has ended
		h.ServeHTTP(w, request)
	})
}

// evicts closes connections that make room for others, counts them and logs them,
// unless there are many.
func evicts(log klog.Logger, recorder Recorder) func(*connection) {
	var throttled throttle
	return func(c *connection) {
		c.cut()
		recorder.Problem(CauseConnection)
		if notLogged, ok := throttled.admits(CauseConnection, time.Now()); ok {
			log.Info("Closed a connection, because too many are open", "cause", CauseConnection, "source", c.source, "notLogged", notLogged)
		}
	}
}

// lines writes the HTTP server's own messages, such as failed handshakes.
type lines struct {
	log      klog.Logger
	throttle *throttle
}

// Write logs one message, unless there are many.
func (l lines) Write(message []byte) (int, error) {
	if notLogged, ok := l.throttle.admits(CauseConnection, time.Now()); ok {
		l.log.V(4).Info("HTTP server", "message", string(message), "notLogged", notLogged)
	}
	return len(message), nil
}

// throttle keeps those who can cause problems as often as they like from filling the
// log: of each cause the first problem is logged, and then one in each logEvery. The
// zero value is ready for use.
type throttle struct {
	mu     sync.Mutex
	causes map[Cause]tally
}

// tally is what was logged of a cause.
type tally struct {
	next      time.Time // when the next is logged
	notLogged int       // since the last one that was
}

const logEvery = time.Second

// admits reports whether a problem is logged, and how many of its cause were not
// since the last one that was.
func (t *throttle) admits(cause Cause, now time.Time) (notLogged int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.causes == nil {
		t.causes = map[Cause]tally{}
	}
	so := t.causes[cause]
	if now.Before(so.next) {
		so.notLogged++
		t.causes[cause] = so
		return 0, false
	}
	t.causes[cause] = tally{next: now.Add(logEvery)}
	return so.notLogged, true
}
