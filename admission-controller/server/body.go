package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxQuote is how much of a header a message quotes, in bytes.
const maxQuote = 100

// read returns the body. Without memory for it, it returns nil and 0. If the request must be
// answered with a status alone, it returns nil and the HTTP status code.
func (x *exchange) read(ctx context.Context, w http.ResponseWriter, request *http.Request) (body []byte, code int) {
	if !x.callers.permits(request) {
		x.problem(CauseClient, errNoClientCertificate)
		return nil, http.StatusForbidden
	}
	if kind := request.Header.Get("Content-Type"); kind != "application/json" {
		x.problem(CauseContentType, fmt.Errorf("content type is %q, must be application/json", kind[:min(len(kind), maxQuote)]))
		return nil, http.StatusOK
	}
	body, err := x.receive(ctx, http.NewResponseController(w), http.MaxBytesReader(w, request.Body, MaxBody), request.ContentLength)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		x.problem(CauseTooLarge, fmt.Errorf("the body exceeds %d bytes", MaxBody))
		return nil, http.StatusRequestEntityTooLarge
	case err != nil:
		x.problem(CauseBody, err)
		return nil, http.StatusBadRequest
	}
	return body, 0
}

// receive reads a body of the given length, -1 if unknown. It reserves memory as the body grows. A
// large body must fill each chunk in time, so that slow clients cannot hold the memory. Without
// memory, receive decodes the review's head, drops the rest and returns a nil body.
func (x *exchange) receive(ctx context.Context, control *http.ResponseController, from io.Reader, length int64) ([]byte, error) {
	x.buffer = buffers.Get().(*[]byte)
	body := (*x.buffer)[:0]
	size := cap(body) - 1 // room for one more byte, to detect the end
	end := x.started.Add(bodyTimeout)
	for {
		n, err := fill(body[len(body):cap(body)], from)
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			*x.buffer = body
			return body, limit(control, time.Time{}) // handling has its own time limits
		}
		if err != nil {
			return nil, err
		}
		if size = larger(size, length); size > maxSmallBody {
			start := time.Now()
			room := x.reserve(ctx, body, size)
			end = end.Add(time.Since(start))
			if !room {
				x.release()
				x.decoded = decodeHead(body)
				if err := limit(control, end); err != nil {
					return nil, err
				}
				// A client that is still writing might not read the answer, and the answer does not
				// depend on the rest.
				_, _ = io.Copy(io.Discard, from)
				return nil, nil
			}
			chunk := time.Now().Add(chunkTimeout)
			if chunk.After(end) {
				chunk = end
			}
			if err := limit(control, chunk); err != nil {
				return nil, err
			}
		}
		body = append(make([]byte, 0, size+1), body...)
	}
}

// buffers pools the buffers of small bodies.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, initialBody+1)) }}

// reuse returns the buffer of the body to the pool. The body must not be used afterwards.
func (x *exchange) reuse() {
	if x.buffer != nil && cap(*x.buffer) <= maxSmallBody+1 {
		buffers.Put(x.buffer)
	}
}

func larger(size int, length int64) int {
	next := min(max(2*size, initialBody), MaxBody)
	if int64(size) < length && length < int64(next) {
		return int(length)
	}
	return next
}

func fill(room []byte, from io.Reader) (n int, err error) {
	for n < len(room) && err == nil {
		var more int
		more, err = from.Read(room[n:])
		n += more
	}
	return n, err
}

func (x *exchange) reserve(ctx context.Context, beginning []byte, size int) bool {
	ctx, cancel := withHalfTimeout(ctx, x.started)
	defer cancel()
	if x.reservation == nil {
		x.reservation = x.memory.open(namespaceOf(beginning))
	}
	return x.reservation.grow(ctx, size)
}

func (x *exchange) release() {
	if x.reservation != nil {
		x.reservation.close()
	}
}

func limit(control *http.ResponseController, until time.Time) error {
	if err := control.SetReadDeadline(until); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil // a body without a network connection cannot stall
}

// slots limits concurrent reviews overall, per namespace, and large reviews per namespace.
type slots struct {
	all chan struct{} // a value for each review in progress

	mu         sync.Mutex
	namespaces map[string]*namespaceSlots // with reviews in progress or waiting
}

type namespaceSlots struct {
	users      int // reviews in progress or waiting, guarded by slots.mu
	all, large chan struct{}
}

func newSlots(number int) *slots {
	return &slots{all: make(chan struct{}, number), namespaces: map[string]*namespaceSlots{}}
}

// begin waits for the slots and returns a function that releases them, or nil if half of the
// remaining time of ctx passes first.
func (s *slots) begin(ctx context.Context, namespace string, large bool) (end func()) {
	n := s.enter(namespace)
	needed := []chan struct{}{n.large, n.all, s.all}
	if !large {
		needed = needed[1:]
	}
	start := time.Now()
	for i, slot := range needed {
		if !takeSlot(ctx, start, slot) {
			s.leave(namespace, n, needed[:i])
			return nil
		}
	}
	return func() { s.leave(namespace, n, needed) }
}

func (s *slots) enter(namespace string) *namespaceSlots {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[namespace]
	if n == nil {
		n = &namespaceSlots{all: make(chan struct{}, max(1, cap(s.all)/namespaceShare)), large: make(chan struct{}, maxLargePerNamespace)}
		s.namespaces[namespace] = n
	}
	n.users++
	return n
}

func (s *slots) leave(namespace string, n *namespaceSlots, held []chan struct{}) {
	for _, slot := range held {
		<-slot
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(s.namespaces, namespace)
	}
}

// takeSlot waits for a slot until halfway between start and the deadline of ctx. A free slot needs no timer.
func takeSlot(ctx context.Context, start time.Time, slot chan struct{}) bool {
	select {
	case slot <- struct{}{}:
		return true
	default:
	}
	waiting, cancel := withHalfTimeout(ctx, start)
	defer cancel()
	select {
	case slot <- struct{}{}:
		return true
	case <-waiting.Done():
		return false
	}
}
