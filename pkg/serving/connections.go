package serving

import (
	"cmp"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections bounds the number of open connections. Beyond the bound a new connection is not
// refused, because it may belong to an API server or to the kubelet. It replaces another one,
// preferably an untrusted connection of the client address with the most untrusted ones.
type connections struct {
	maxOpen, maxPerSource int
	bounds                Bounds
	report                *log.Logger
	evicted               func(c *Connection, reason string) // called without the mutex

	mu      sync.Mutex
	open    map[*Connection]struct{}
	sources map[string]*source
	steps   uint64
}

// source is a client address with open connections.
type source struct {
	address   string
	open      int
	untrusted int // untrusted connections, valid during a search for a victim
}

// stallTime is the maximum time in which a healthy client sends a request.
const stallTime = 2 * time.Second

// Socket buffers count as memory of the container, and the kernel doubles them.
const socketBuffer = 32 << 10

func newConnections(maxOpen int, bounds Bounds, report *log.Logger, evicted func(c *Connection, reason string)) *connections {
	return &connections{
		maxOpen: maxOpen, maxPerSource: max(maxOpen/4, 1), bounds: bounds, report: report, evicted: evicted,
		open: map[*Connection]struct{}{}, sources: map[string]*source{},
	}
}

type boundedListener struct {
	net.Listener
	table *connections
	port  *Port
}

// Accept waits for a connection and closes another one if too many are open.
func (b *boundedListener) Accept() (net.Conn, error) {
	raw, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(socketBuffer)  // fails if the client closed first
		_ = tcp.SetWriteBuffer(socketBuffer) // fails if the client closed first
	}
	if b.port.TLS == nil {
		c := &Connection{Conn: raw, raw: raw}
		b.table.add(c)
		return c, nil
	}
	limited := &quota{Conn: raw}
	limited.set(maxHandshake)
	encrypted := b.port.TLS.Server(limited)
	c := &Connection{Conn: encrypted, raw: raw, quota: limited}
	b.table.add(c)
	return &tlsConnection{Connection: c, tls: encrypted}, nil
}

// add registers a new connection and closes others that exceed a bound.
func (cs *connections) add(c *Connection) {
	address := hostOf(c.raw.RemoteAddr().String())
	cs.mu.Lock()
	c.table, c.silent = cs, true
	cs.enter(c, sending)
	c.firstBy = c.since.Add(cs.bounds.FirstByte)
	if cs.sources[address] == nil {
		cs.sources[address] = &source{address: address}
	}
	c.source = cs.sources[address]
	c.source.open++
	cs.open[c] = struct{}{}
	var victims []*Connection
	if c.source.open > cs.maxPerSource {
		victims = append(victims, cs.remove(cs.victimOfAddress(c)))
	}
	if len(cs.open) > cs.maxOpen {
		victims = append(victims, cs.remove(cs.victim(c)))
	}
	cs.mu.Unlock()
	for _, victim := range victims {
		if victim != nil {
			victim.cut()
			cs.evicted(victim, "too many connections")
		}
	}
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// enter starts a phase. The caller holds the mutex.
func (cs *connections) enter(c *Connection, next phase) {
	cs.steps++
	c.phase, c.order, c.since = next, cs.steps, time.Now()
}

// remove returns nil for a nil or unregistered connection. The caller holds the mutex.
func (cs *connections) remove(c *Connection) *Connection {
	if c == nil {
		return nil
	}
	if _, ok := cs.open[c]; !ok {
		return nil
	}
	delete(cs.open, c)
	if c.source.open--; c.source.open == 0 {
		delete(cs.sources, c.source.address)
	}
	return c
}

func (cs *connections) drop(c *Connection) {
	cs.mu.Lock()
	open := cs.remove(c) != nil
	cs.mu.Unlock()
	if open {
		c.cut()
		cs.evicted(c, "slow reader")
	}
}

// rank orders connections by the loss of their clients. The lowest is closed first.
type rank int

const (
	rankStalled    rank = iota // untrusted, and slower than a healthy client
	rankProbed                 // idle, and never trusted
	rankNew                    // untrusted, and may still complete its request
	rankResponding             // untrusted, and its response is being prepared
	rankTrusted                // served a review
	rankVerified               // presented a verified client certificate
	rankReviewing              // trusted, and its response is being prepared
)

// rank returns the rank of a connection. The caller holds the mutex.
func (c *Connection) rank(now time.Time) rank {
	slow := c.phase != idle && now.Sub(c.since) >= stallTime
	switch {
	case c.phase == working && c.trusted():
		return rankReviewing
	case c.verified:
		return rankVerified
	case slow:
		return rankStalled
	case c.trustedSince > 0:
		return rankTrusted
	case c.phase == working:
		return rankResponding
	case c.phase == idle:
		return rankProbed
	}
	return rankNew
}

// before reports whether a connection is closed before another one: by rank, then the longest in
// its phase. Among working connections the newest is closed first. Among trusted ones the last
// trusted is closed first, so that a later client never displaces the API server.
func (c *Connection) before(other *Connection, now time.Time) bool {
	a, b := c.rank(now), other.rank(now)
	switch {
	case a != b:
		return a < b
	case a == rankTrusted:
		return c.trustedSince > other.trustedSince
	case a == rankResponding || a == rankReviewing:
		return c.order > other.order
	}
	return c.order < other.order
}

// victimOfAddress returns the connection of the same address that a new one replaces, or nil if
// that would interrupt a response. The caller holds the mutex.
func (cs *connections) victimOfAddress(opened *Connection) *Connection {
	var found *Connection
	for c := range cs.open {
		if c != opened && c.source == opened.source && (found == nil || c.before(found, opened.since)) {
			found = c
		}
	}
	if found != nil && found.phase == working && found.rank(opened.since) != rankStalled {
		return nil
	}
	return found
}

// victim returns the connection to close: an untrusted one of the address with the most untrusted
// ones, else one of the address with the most connections. The caller holds the mutex.
func (cs *connections) victim(opened *Connection) *Connection {
	now := opened.since
	for c := range cs.open {
		c.source.untrusted = 0
	}
	for c := range cs.open {
		if c.rank(now) < rankTrusted {
			c.source.untrusted++
		}
	}
	var untrusted, other *Connection
	for c := range cs.open {
		if c != opened && c.rank(now) < rankTrusted && c.yields(untrusted, now, func(s *source) int { return s.untrusted }) {
			untrusted = c
		}
		if c.yields(other, now, func(s *source) int { return s.open }) {
			other = c
		}
	}
	if untrusted != nil {
		return untrusted
	}
	return other
}

// yields reports whether a connection is closed before another one, which may be nil: by the number
// of connections of its address, then as before.
func (c *Connection) yields(other *Connection, now time.Time, number func(*source) int) bool {
	if other == nil {
		return true
	}
	if order := cmp.Compare(number(c.source), number(other.source)); order != 0 {
		return order > 0
	}
	return c.before(other, now)
}

func (cs *connections) updateState(conn net.Conn, state http.ConnState) {
	c := connectionIn(conn)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch state {
	case http.StateIdle:
		cs.enter(c, idle)
		c.quota.set(maxRecords)
		if c.early {
			c.startHeader()
		}
	case http.StateClosed:
		cs.remove(c)
	}
}

func connectionIn(conn net.Conn) *Connection {
	if s, ok := conn.(*tlsConnection); ok {
		return s.Connection
	}
	c, _ := conn.(*Connection)
	return c
}

const restInterval = 100 * time.Millisecond

// await waits until connections that may get a review are closed or idle for the rest time, at most
// that long: a client may reuse a connection soon, and a request during its closure is lost.
func (cs *connections) await() {
	for end := time.Now().Add(cs.bounds.Rest); cs.busy(time.Now()) && time.Now().Before(end); {
		time.Sleep(restInterval)
	}
}

func (cs *connections) busy(now time.Time) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		if (c.phase == sending || c.phase == idle && c.trustedSince > 0) && now.Sub(c.since) < cs.bounds.Rest {
			return true
		}
	}
	return false
}
