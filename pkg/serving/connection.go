package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"time"
)

// Connection is a connection of a Port. Nil ignores all calls, for handlers without a Port.
type Connection struct {
	net.Conn          // read by the HTTP server: TLS or plain
	raw      net.Conn // below TLS
	quota    *quota   // of bytes below TLS, nil without TLS
	table    *connections
	source   *source

	// Guarded by table.mu.
	phase        phase
	since        time.Time // start of phase
	order        uint64    // start of phase, relative to other connections
	trustedSince uint64    // order of the first trusted request, 0 without one
	verified     bool      // the client presented a verified certificate
	silent       bool      // no byte of a request arrived yet
	firstBy      time.Time // deadline of the first byte, if silent
	headerBy     time.Time // deadline of the header that is arriving, else zero
	requested    time.Time // read deadline that the HTTP server or a handler set
	lines        int       // complete lines of the header that is arriving
	length       int       // bytes of its last line, without the end of the line
	ended        bool      // its empty last line arrived
	early        bool      // the next request started to arrive during a response
}

// phase is the state of a connection between two requests.
type phase int

const (
	sending phase = iota // waits for the first request or the rest of one
	working              // the whole request arrived, the response is not complete
	idle                 // between two requests
)

type connectionKey struct{}

// ConnectionOf returns the connection of a request, nil without a Port.
func ConnectionOf(ctx context.Context) *Connection {
	c, _ := ctx.Value(connectionKey{}).(*Connection)
	return c
}

// Working records that the whole request arrived.
func (c *Connection) Working() {
	if c == nil {
		return
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.table.enter(c, working)
}

// Trust protects the connection: it is closed after connections that were never trusted.
func (c *Connection) Trust() {
	if c == nil {
		return
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if c.trustedSince == 0 {
		c.trustedSince = c.order
	}
}

// trusted reports whether the client has priority. The caller holds the mutex.
func (c *Connection) trusted() bool { return c.verified || c.trustedSince > 0 }

var errFields = errors.New("too many header fields")

// Read reads from the client. Its first byte starts the deadline of a header. It fails if the
// header has too many fields, because they take much more memory than their bytes.
func (c *Connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.early = c.phase == working
	c.startHeader()
	if !c.headerBy.IsZero() && c.countLines(p[:n]) > maxFields {
		return 0, errFields
	}
	return n, err
}

// countLines returns the number of lines of the header so far. The caller holds the mutex.
func (c *Connection) countLines(read []byte) int {
	for _, b := range read {
		switch {
		case c.ended:
			return c.lines
		case b == '\n':
			c.ended = c.length == 0 && c.lines > 0
			c.lines, c.length = c.lines+1, 0
		case b != '\r':
			c.length++
		}
	}
	return c.lines
}

// startHeader starts the deadline of a header. The caller holds the mutex.
func (c *Connection) startHeader() {
	if !c.silent && c.phase != idle {
		return
	}
	c.lines, c.length, c.ended = 0, 0, false
	c.silent = false
	c.table.enter(c, sending)
	c.headerBy = c.since.Add(headerTime)
	_ = c.limitRead() // a closed connection fails the next read
}

// headerReceived ends the deadline of the header and starts the deadline of the body.
func (c *Connection) headerReceived(body bool) {
	if c == nil {
		return
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.silent, c.early, c.headerBy = false, false, time.Time{}
	c.quota.set(unlimited)
	c.table.enter(c, working)
	if body {
		c.table.enter(c, sending)
		c.requested = c.since.Add(c.table.bounds.Body)
	}
	_ = c.limitRead() // a closed connection fails the next read
}

// SetReadDeadline sets a read deadline, unless the bound of the connection is earlier.
func (c *Connection) SetReadDeadline(t time.Time) error {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.requested = t
	return c.limitRead()
}

func (c *Connection) limitRead() error {
	by := c.requested
	switch {
	case c.silent:
		by = c.firstBy
	case !c.headerBy.IsZero():
		by = earlier(by, c.headerBy)
	case c.phase == idle && !c.trusted():
		by = earlier(by, c.since.Add(c.table.bounds.ProbeIdle))
	}
	return c.Conn.SetReadDeadline(by)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// CloseWrite lets the client read an error response although it still writes.
func (c *Connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// cut closes the connection at once and drops unsent data. A TLS shutdown would wait for a client
// that does not read.
func (c *Connection) cut() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails if the client closed first
	}
	_ = c.raw.Close() // fails if the client closed first
}

type tlsConnection struct {
	*Connection
	tls *tls.Conn
}

// ConnectionState completes the handshake. The HTTP server calls it before it reads. After a failed
// handshake reads return its error.
func (s *tlsConnection) ConnectionState() tls.ConnectionState {
	_ = s.tls.SetDeadline(time.Now().Add(handshakeTime)) // a closed connection fails the handshake
	err := s.tls.Handshake()
	state := s.tls.ConnectionState()
	s.quota.set(maxRecords)
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.enter(s.Connection, sending)
	s.firstBy = s.since.Add(s.table.bounds.FirstByte)
	s.verified = err == nil && len(state.PeerCertificates) > 0
	if err != nil {
		s.table.report.Printf("TLS handshake with %s failed: %v", s.source.address, err)
	}
	_ = s.tls.SetDeadline(time.Time{}) // a closed connection fails the next read
	return state
}

// quota bounds the bytes that TLS reads for a handshake or a header. An incomplete handshake
// message stays in memory.
type quota struct {
	net.Conn
	left atomic.Int64
}

const unlimited = math.MaxInt64 / 2

func (q *quota) set(bytes int64) {
	if q != nil {
		q.left.Store(bytes)
	}
}

var errQuota = errors.New("too many bytes for a handshake or a header")

// Read fails once the quota is used up.
func (q *quota) Read(p []byte) (int, error) {
	left := q.left.Load()
	if left <= 0 {
		return 0, errQuota
	}
	n, err := q.Conn.Read(p[:min(int64(len(p)), left)])
	q.left.Add(-int64(n))
	return n, err
}
