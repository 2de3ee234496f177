package serving

import (
	"context"
	"crypto/tls"
	"errors"
	stdlog "log"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Bounds of every connection of every port.
const (
	// maxHeader is the largest request line and header in bytes.
	maxHeader = 8 << 10
	// maxFields is how many fields a header has at most.
	maxFields = 100
	// maxHandshake bounds the bytes of a TLS handshake, and those of a header with its TLS records.
	maxHandshake, maxRecords = 32 << 10, 32 << 10
	// handshakeTime bounds a TLS handshake.
	handshakeTime = 10 * time.Second
	// headerTime bounds a header once its first byte arrived.
	headerTime = 10 * time.Second
	// headerCost is the memory that a byte of an unfinished header takes at most: its fields become
	// entries of a map, and the garbage collector needs room.
	headerCost = 20
	// memoryParts is the number of equal parts of the connections that fit the memory limit.
	memoryParts = 8
	// minConnections are open even if the memory limit is very low.
	minConnections = 16
	// headerSlack is added by the HTTP server to its limit of a header.
	headerSlack = 4 << 10
)

// Bounds limit the connections of one Port.
type Bounds struct {
	// Connections is how many are open at most, a quarter of them for one client address.
	Connections int
	// MemoryPart is the part of the memory for connections, half of GOMEMLIMIT, that this port may
	// use, in eighths. It can lower Connections.
	MemoryPart int
	// FirstByte is how long a client may wait before it sends its first request.
	FirstByte time.Duration
	// Body is how long a body may take. Zero refuses requests with a body.
	Body time.Duration
	// Answer is how long a response may take once the header arrived.
	Answer time.Duration
	// Idle and ProbeIdle are how long trusted and other connections may be idle.
	Idle, ProbeIdle time.Duration

	// Drain is how long the port still answers after its context ended, with "Connection: close".
	Drain time.Duration
	// Rest is how long a connection must be unused before the end closes it. The port waits for
	// that as long at most.
	Rest time.Duration
	// End is how long open requests may take at the end.
	End time.Duration
}

// Port serves HTTP/1.1 on one listener with bounds for everything that a client controls. HTTP/2 is
// not offered: it multiplexes requests, and neither API servers, the kubelet nor Prometheus need
// it.
type Port struct {
	Listener net.Listener
	// TLS begins TLS on a connection, for HTTP/1.1 alone. When nil, the port serves plain HTTP.
	// Only a program with an implementation links the server side of TLS (0.2 MB).
	TLS     interface{ Server(net.Conn) *tls.Conn }
	Handler http.Handler
	Bounds  Bounds
	// Evicted counts the connections that were closed in favor of others, if not nil.
	Evicted interface{ Inc() }
}

// connections returns how many connections fit the memory limit in bytes.
func (b Bounds) connections(memoryLimit int64) int {
	if memoryLimit == math.MaxInt64 {
		return b.Connections
	}
	fit := memoryLimit / 2 / (maxHeader * headerCost) * int64(b.MemoryPart) / memoryParts
	return int(min(int64(b.Connections), max(fit, minConnections)))
}

// Run serves until ctx ends, drains, and lets open requests end. It returns an error if the
// listener fails.
func (p *Port) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	report := stdlog.New(errorLog{log, &Throttle{}}, "", 0)
	table := newConnections(p.Bounds.connections(debug.SetMemoryLimit(-1)), p.Bounds, report, p.reportClosed(log))
	listener := &bounded{Listener: p.Listener, table: table, port: p}
	var draining atomic.Bool
	server := &http.Server{
		Handler:   p.guard(&draining),
		Protocols: onlyHTTP1(),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, connectionIn(c))
		},
		ConnState:         table.changed,
		ReadHeaderTimeout: headerTime,
		WriteTimeout:      p.Bounds.Answer,
		IdleTimeout:       p.Bounds.Idle,
		MaxHeaderBytes:    maxHeader - headerSlack,
		ErrorLog:          report,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-ctx.Done()
		draining.Store(true)
		time.Sleep(p.Bounds.Drain)
		table.await()
	}()
	select {
	case err := <-ended:
		return err
	case <-drained:
	}
	quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Bounds.End)
	defer cancel()
	if err := server.Shutdown(quiet); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}

// onlyHTTP1 leaves HTTP/2 out.
func onlyHTTP1() *http.Protocols {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return protocols
}

// guard bounds the body of each request. While the port drains, each response ends its
// connection: the client opens another one, which reaches another replica. Otherwise the client
// might write a request into a connection at the moment in which it is closed.
func (p *Port) guard(draining *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body := request.ContentLength != 0
		ConnectionOf(request.Context()).received(body)
		if draining.Load() {
			w.Header().Set("Connection", "close")
		}
		if body && p.Bounds.Body == 0 {
			w.Header().Set("Connection", "close")
			http.Error(w, "requests with a body are not served here", http.StatusRequestEntityTooLarge)
			return
		}
		p.Handler.ServeHTTP(w, request)
	})
}

// reportClosed counts and logs connections that are closed in favor of others.
func (p *Port) reportClosed(log klog.Logger) func(c *Connection, reason string) {
	var throttle Throttle
	return func(c *Connection, reason string) {
		if p.Evicted != nil {
			p.Evicted.Inc()
		}
		if notLogged, ok := throttle.Admits(reason, time.Now()); ok {
			log.Info("Closed a connection", "reason", reason, "source", c.source.address, "notLogged", notLogged)
		}
	}
}
