package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Bounds of every connection of every port.
const (
	// maxHeader is the maximum size of the request line and header in bytes.
	maxHeader = 8 << 10
	maxFields = 100
	// maxHandshake bounds the bytes of a TLS handshake. maxRecords bounds the bytes of a header
	// with its TLS records.
	maxHandshake, maxRecords = 32 << 10, 32 << 10
	handshakeTime            = 10 * time.Second
	// headerTime bounds a header once its first byte arrived.
	headerTime = 10 * time.Second
	// headerCost is the maximum memory per byte of an unfinished header. Its fields become entries
	// of a map, and the garbage collector needs room.
	headerCost = 20
	// memoryParts is the number of equal parts of the memory for connections.
	memoryParts = 8
	// minConnections are open even if the memory limit is very low.
	minConnections = 16
	// headerSlack is added by the HTTP server to its limit of a header.
	headerSlack = 4 << 10
)

// Bounds limits the connections of one Port.
type Bounds struct {
	// Connections is the maximum of open connections. One client address may have a quarter.
	Connections int
	// MemoryPart is the part, in eighths, of the memory for connections that this port may use.
	// That memory is half of GOMEMLIMIT. It can lower Connections.
	MemoryPart int
	// FirstByte is the timeout until the first byte of the first request.
	FirstByte time.Duration
	// Body is the timeout of a request body. Zero refuses requests with a body.
	Body time.Duration
	// Answer is the timeout of a response, from the end of the header.
	Answer time.Duration
	// Idle and ProbeIdle are the idle timeouts of trusted and other connections.
	Idle, ProbeIdle time.Duration

	// Drain is how long the port answers after its context ended, with "Connection: close".
	Drain time.Duration
	// Rest is the unused time after which shutdown closes a connection. It waits at most as long.
	Rest time.Duration
	// End is the timeout of open requests at shutdown.
	End time.Duration
}

// Port serves HTTP/1.1 on one listener and bounds everything that a client controls. It does not
// offer HTTP/2, which API servers, the kubelet and Prometheus do not need.
type Port struct {
	Listener net.Listener
	// TLS starts TLS on a connection, only for HTTP/1.1. Nil means plain HTTP. The interface lets
	// only programs with an implementation link the server side of TLS (0.2 MB).
	TLS     interface{ Server(net.Conn) *tls.Conn }
	Handler http.Handler
	Bounds  Bounds
	// Evicted counts connections that were closed in favor of others. It may be nil.
	Evicted interface{ Inc() }
}

func (b Bounds) connections(memoryLimit int64) int {
	if memoryLimit == math.MaxInt64 {
		return b.Connections
	}
	fit := memoryLimit / 2 / (maxHeader * headerCost) * int64(b.MemoryPart) / memoryParts
	return int(min(int64(b.Connections), max(fit, minConnections)))
}

// Run serves until ctx ends, drains, and finishes open requests. It fails if the listener fails.
func (p *Port) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	report := stdlog.New(errorLog{log, &Throttle{}}, "", 0)
	table := newConnections(p.Bounds.connections(debug.SetMemoryLimit(-1)), p.Bounds, report, p.reportClosed(log))
	listener := &boundedListener{Listener: p.Listener, table: table, port: p}
	var draining atomic.Bool
	server := &http.Server{
		Handler:   p.guard(&draining),
		Protocols: onlyHTTP1(),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, connectionIn(c))
		},
		ConnState:         table.updateState,
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
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Bounds.End)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}

func onlyHTTP1() *http.Protocols {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return protocols
}

// guard bounds request bodies. While the port drains, each response closes its connection, so that
// the client reconnects to another replica before its connection is closed.
func (p *Port) guard(draining *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body := request.ContentLength != 0
		ConnectionOf(request.Context()).headerReceived(body)
		if draining.Load() {
			w.Header().Set("Connection", "close")
		}
		if body && p.Bounds.Body == 0 {
			w.Header().Set("Connection", "close")
			http.Error(w, "requests with a body are not supported", http.StatusRequestEntityTooLarge)
			return
		}
		p.Handler.ServeHTTP(w, request)
	})
}

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

const (
	// maxConcurrent is the maximum number of concurrent responses for one large page. A page takes
	// megabytes in a large cluster, and any pod may reach the port.
	maxConcurrent = 4
	// holdTime is the time after which a request may lose its place to a waiting one. A healthy
	// client reads a page in less.
	holdTime = 4 * time.Second
	// waitTime is the maximum wait for a place, less than the timeout of a scrape.
	waitTime = 9 * time.Second
)

// pageLimiter answers a few requests for a page at once. The next place goes to the client address
// with the fewest places and waiting requests, so that one client does not delay the others. A slow
// reader loses its place, and its connection, to a waiting request.
type pageLimiter struct {
	handler http.Handler

	mu         sync.Mutex
	responding []*pageRequest
	waiting    []*pageRequest
}

type pageRequest struct {
	address  string
	client   *Connection
	since    time.Time // when it got its place
	admitted chan struct{}
	dropped  bool
}

func limitPage(handler http.Handler) http.Handler { return &pageLimiter{handler: handler} }

// ServeHTTP waits for a place and answers, or refuses the request with status 503.
func (l *pageLimiter) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r := &pageRequest{address: hostOf(request.RemoteAddr), client: ConnectionOf(request.Context()), admitted: make(chan struct{})}
	if !l.enter(r, request) {
		http.Error(w, fmt.Sprintf("%d requests for this page are being answered: try again", maxConcurrent), http.StatusServiceUnavailable)
		return
	}
	defer l.leave(r)
	l.handler.ServeHTTP(w, request)
}

// enter waits for a place. It returns false after waitTime, or if the client left.
func (l *pageLimiter) enter(r *pageRequest, request *http.Request) bool {
	l.mu.Lock()
	l.waiting = append(l.waiting, r)
	l.admit()
	l.mu.Unlock()
	select {
	case <-r.admitted: // the common case, without a timer
		return true
	default:
	}
	expired := time.NewTimer(waitTime)
	defer expired.Stop()
	for {
		slow := time.NewTimer(l.dropSlow(time.Now()))
		select {
		case <-r.admitted:
			slow.Stop()
			return true
		case <-slow.C:
			continue
		case <-expired.C:
		case <-request.Context().Done():
		}
		slow.Stop()
		return l.abandon(r)
	}
}

// abandon removes a waiting request. It returns true if the request got a place at the same moment.
func (l *pageLimiter) abandon(r *pageRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.waiting, r)
	if at < 0 {
		return true
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	return false
}

func (l *pageLimiter) leave(r *pageRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.responding, r)
	l.responding = slices.Delete(l.responding, at, at+1)
	l.admit()
}

// admit gives free places to waiting requests. The caller holds the mutex.
func (l *pageLimiter) admit() {
	for len(l.responding) < maxConcurrent && len(l.waiting) > 0 {
		number := map[string]int{}
		for _, others := range [][]*pageRequest{l.responding, l.waiting} {
			for _, other := range others {
				number[other.address]++
			}
		}
		at := 0
		for i, waiting := range l.waiting {
			if number[waiting.address] < number[l.waiting[at].address] {
				at = i
			}
		}
		next := l.waiting[at]
		l.waiting = slices.Delete(l.waiting, at, at+1)
		next.since = time.Now()
		l.responding = append(l.responding, next)
		close(next.admitted)
	}
}

// dropSlow closes connections that exceed holdTime, and returns the time until the next one does.
func (l *pageLimiter) dropSlow(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := holdTime
	for _, holder := range l.responding {
		left := holder.since.Add(holdTime).Sub(now)
		switch {
		case left > 0:
			next = min(next, left)
		case !holder.dropped && holder.client != nil:
			holder.dropped = true
			holder.client.table.drop(holder.client)
		}
	}
	return next
}
