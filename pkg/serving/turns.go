package serving

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// atOnce is how many requests for one large page are answered at the same time: a page takes
	// megabytes in a large cluster, and any pod may reach the port.
	atOnce = 4
	// turnTime is how long a request keeps its place while others wait. A healthy client reads a page
	// in less.
	turnTime = 4 * time.Second
	// waitTime is how long a request waits for a place, less than the timeout of a scrape.
	waitTime = 9 * time.Second
)

// turns answers a few requests for a page at once. The next place goes to the client address that has
// the fewest places and waiting requests, so that one client does not delay the others. A client that
// reads slowly loses its place, and its connection, to a waiting one.
type turns struct {
	handler http.Handler

	mu      sync.Mutex
	holders []*turn
	waiting []*turn
}

// turn is one request for a page.
type turn struct {
	address string
	client  *Connection
	since   time.Time // when it got its place
	granted chan struct{}
	dropped bool
}

func few(handler http.Handler) http.Handler { return &turns{handler: handler} }

// ServeHTTP waits for a place and answers, or refuses the request with status 503.
func (t *turns) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	address, _, err := net.SplitHostPort(request.RemoteAddr)
	if err != nil {
		address = request.RemoteAddr
	}
	mine := &turn{address: address, client: ConnectionOf(request.Context()), granted: make(chan struct{})}
	if !t.enter(mine, request) {
		http.Error(w, fmt.Sprintf("%d requests for this page are being answered: try again", atOnce), http.StatusServiceUnavailable)
		return
	}
	defer t.leave(mine)
	t.handler.ServeHTTP(w, request)
}

// enter waits for a place. It returns false after waitTime, or if the client left.
func (t *turns) enter(mine *turn, request *http.Request) bool {
	t.mu.Lock()
	t.waiting = append(t.waiting, mine)
	t.grant()
	t.mu.Unlock()
	select {
	case <-mine.granted: // as nearly always, and without a timer
		return true
	default:
	}
	expired := time.NewTimer(waitTime)
	defer expired.Stop()
	for {
		slow := time.NewTimer(t.dropSlow(time.Now()))
		select {
		case <-mine.granted:
			slow.Stop()
			return true
		case <-slow.C:
			continue
		case <-expired.C:
		case <-request.Context().Done():
		}
		slow.Stop()
		return t.abandon(mine)
	}
}

// abandon removes a waiting request. It returns true if the request got a place at the same moment.
func (t *turns) abandon(mine *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.waiting, mine)
	if at < 0 {
		return true
	}
	t.waiting = slices.Delete(t.waiting, at, at+1)
	return false
}

func (t *turns) leave(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.holders, mine)
	t.holders = slices.Delete(t.holders, at, at+1)
	t.grant()
}

// grant gives free places to waiting requests. The caller holds the mutex.
func (t *turns) grant() {
	for len(t.holders) < atOnce && len(t.waiting) > 0 {
		number := map[string]int{}
		for _, others := range [][]*turn{t.holders, t.waiting} {
			for _, other := range others {
				number[other.address]++
			}
		}
		next := 0
		for at, waiting := range t.waiting {
			if number[waiting.address] < number[t.waiting[next].address] {
				next = at
			}
		}
		granted := t.waiting[next]
		t.waiting = slices.Delete(t.waiting, next, next+1)
		granted.since = time.Now()
		t.holders = append(t.holders, granted)
		close(granted.granted)
	}
}

// dropSlow closes the connections of requests that keep a place for long, and returns when the next
// one does.
func (t *turns) dropSlow(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := turnTime
	for _, holder := range t.holders {
		left := holder.since.Add(turnTime).Sub(now)
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
