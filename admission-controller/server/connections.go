package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of the connections that are open at the same time. API servers have as
// many as they have reviews under way, mostly below ten.
const (
	mostConnections = 1000
	mostOfSource    = 250 // from one address
)

// connections bounds how many connections are open. Beyond that a new one is not
// refused: it might be that of an API server or of the kubelet. Another makes room,
// first one of the source with the most, so that who opens many closes his own.
type connections struct {
	most, mostOfSource int
	evicted            func(*connection) // closes one that made room; called without the mutex

	mu      sync.Mutex
	open    map[net.Conn]*connection
	sources map[string]int // how many each has
	steps   uint64
}

// connection is one that is open. Its fields belong to the mutex of connections.
type connection struct {
	net.Conn
	of       *connections
	source   string
	phase    phase
	since    time.Time   // when phase began
	step     uint64      // the same, in the order of all connections
	reviewed bool        // it was used for a review
	ending   *time.Timer // closes one that only probes; nil: it does not
}

// phase is what a connection does.
type phase int

const (
	sending phase = iota // a request, or none yet
	working              // its request is here and not answered
	idle
)

func newConnections(most, mostOfSource int, evicted func(*connection)) *connections {
	return &connections{most: most, mostOfSource: mostOfSource, evicted: evicted, open: map[net.Conn]*connection{}, sources: map[string]int{}}
}

// add takes a new connection and makes room for it.
func (cs *connections) add(opened net.Conn) *connection {
	c := &connection{Conn: opened, of: cs, source: sourceOf(opened)}
	cs.mu.Lock()
	cs.enter(c, sending)
	cs.open[opened] = c
	cs.sources[c.source]++
	var victims []*connection
	if cs.sources[c.source] > cs.mostOfSource {
		victims = append(victims, cs.remove(cs.spare(c)))
	}
	if len(cs.open) > cs.most {
		victims = append(victims, cs.remove(cs.least(c.since)))
	}
	cs.mu.Unlock()
	for _, victim := range victims {
		if victim != nil {
			cs.evicted(victim)
		}
	}
	return c
}

// sourceOf is the address of a client without its port.
func sourceOf(c net.Conn) string {
	address := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// enter notes that a connection does something else now. The caller holds the mutex.
func (cs *connections) enter(c *connection, next phase) {
	cs.steps++
	c.phase, c.step, c.since = next, cs.steps, time.Now()
	if c.ending != nil {
		c.ending.Stop()
	}
}

// remove forgets a connection, which may be nil, and returns it. The caller holds the
// mutex.
func (cs *connections) remove(c *connection) *connection {
	if c == nil || cs.open[c.Conn] != c {
		return nil
	}
	if c.ending != nil {
		c.ending.Stop()
	}
	delete(cs.open, c.Conn)
	if cs.sources[c.source]--; cs.sources[c.source] == 0 {
		delete(cs.sources, c.source)
	}
	return c
}

// spare is the connection of the same source that a new one takes the place of, nil
// if all are worked on. The caller holds the mutex.
func (cs *connections) spare(opened *connection) *connection {
	var found *connection
	for _, c := range cs.open {
		if c != opened && c.source == opened.source && c.phase != working && (found == nil || c.before(found, opened.since)) {
			found = c
		}
	}
	return found
}

// least is the connection that makes room when there are too many in all. The caller
// holds the mutex.
func (cs *connections) least(now time.Time) *connection {
	var found *connection
	most := 0
	for _, c := range cs.open {
		if of := cs.sources[c.source]; of > most || of == most && c.before(found, now) {
			found, most = c, of
		}
	}
	return found
}

// before reports whether a connection makes room before another: the one of less use,
// then the one that is so for longer; of those that are worked on the latest.
func (c *connection) before(other *connection, now time.Time) bool {
	use, others := c.use(now), other.use(now)
	if use == others && c.phase == working {
		return c.step > other.step
	}
	return cmp.Or(cmp.Compare(use, others), cmp.Compare(c.step, other.step)) < 0
}

// use is how much would be lost with a connection.
func (c *connection) use(now time.Time) int {
	switch {
	case c.phase == working:
		return 4
	case c.phase == sending && now.Sub(c.since) < chunkTime:
		return 3 // it may be about to end its request
	case c.phase == sending:
		return 0
	case c.reviewed:
		return 2
	}
	return 1
}

// changed follows what the HTTP server says of a connection.
func (cs *connections) changed(of net.Conn, state http.ConnState) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.open[of]
	switch {
	case c == nil: // it made room
	case state == http.StateActive:
		cs.enter(c, sending)
	case state == http.StateIdle:
		cs.enter(c, idle)
		if !c.reviewed {
			c.ending = time.AfterFunc(probeIdleTime, func() { cs.end(c) })
		}
	case state == http.StateClosed:
		cs.remove(c)
	}
}

// awaitEvery is how often await looks at the connections.
const awaitEvery = 100 * time.Millisecond

// await waits until the connections that may get a review are closed or have not been used
// for restTime, but no longer than that. A client that used one a moment ago is likely to use
// it soon, and what it writes while the connection is closed is lost.
func (cs *connections) await() {
	for end := time.Now().Add(restTime); cs.unrest(time.Now()) && time.Now().Before(end); {
		time.Sleep(awaitEvery)
	}
}

// unrest reports whether a connection that may get a review was used or opened less than
// restTime ago.
func (cs *connections) unrest(now time.Time) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.open {
		if (c.phase == sending || c.phase == idle && c.reviewed) && now.Sub(c.since) < restTime {
			return true
		}
	}
	return false
}

// end closes a connection that was idle for long, unless it is in use again.
func (cs *connections) end(c *connection) {
	cs.mu.Lock()
	due := c.phase == idle && time.Since(c.since) >= probeIdleTime && cs.remove(c) != nil
	cs.mu.Unlock()
	if due {
		_ = c.Close() // the client may have been faster
	}
}

// works notes that the whole request is here. The connection may be nil: it is not
// known then.
func (c *connection) works() {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.enter(c, working)
}

// reviews notes that the connection is used for reviews. It may be nil.
func (c *connection) reviews() {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.reviewed = true
}

// cut closes a connection at once. To end TLS first would wait for a client that reads
// nothing.
func (c *connection) cut() {
	raw := c.Conn
	if secure, ok := raw.(*tls.Conn); ok {
		raw = secure.NetConn()
	}
	_ = raw.Close() // the client may have been faster
}

// connectionKey is the key of the connection in the context of a request.
type connectionKey struct{}

// attach adds a new connection to the context of its requests.
func (cs *connections) attach(ctx context.Context, opened net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, cs.add(opened))
}

// connectionIn returns the connection of a request, nil if it is not known.
func connectionIn(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}
