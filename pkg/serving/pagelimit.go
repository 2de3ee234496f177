package serving

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// maxConcurrent is how many requests for one large page are answered at the same time: a page
	// takes megabytes in a large cluster, and any pod may reach the port.
	maxConcurrent = 4
	// holdTime is how long a request keeps its place while others wait. A healthy client reads a
	// page in less.
	holdTime = 4 * time.Second
	// waitTime is how long a request waits for a place, less than the timeout of a scrape.
	waitTime = 9 * time.Second
)

// pageLimiter answers a few requests for a page at once. The next place goes to the client address
// that has the fewest places and waiting requests, so that one client does not delay the others. A
// client that reads slowly loses its place, and its connection, to a waiting one.
type pageLimiter struct {
	handler http.Handler

	mu         sync.Mutex
	responding []*pageRequest
	waiting    []*pageRequest
}

// pageRequest is one request for a page.
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
	case <-r.admitted: // as nearly always, and without a timer
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

// dropSlow closes the connections of requests that keep a place for long, and returns when the next
// one does.
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
