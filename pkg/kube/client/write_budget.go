package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// WriteLimit bounds what a program makes the API server store for the objects of one namespace. etcd keeps
// each revision of an object until it is compacted, so many small changes of large objects fill it.
type WriteLimit struct {
	Burst  int           // bytes
	Refill int           // bytes in each Window
	Window time.Duration // more than 0
}

// The limits of the programs allow less than 64 MiB for a namespace in ten minutes together. The admission
// controller writes no object of a user.
var (
	RecommenderWrites = WriteLimit{Burst: 16 << 20, Refill: 24 << 20, Window: 10 * time.Minute}
	UpdaterWrites     = WriteLimit{Burst: 8 << 20, Refill: 12 << 20, Window: 10 * time.Minute}
)

// firstWrite is the assumed size of the first write for a namespace.
const firstWrite = 16 << 10

// budgeted are the resources whose writes count. Others are objects of the programs, such as Leases.
var budgeted = map[string]bool{
	"events": true, "pods": true, "verticalpodautoscalers": true, "verticalpodautoscalercheckpoints": true, "sizingrecords": true,
}

// LimitWrites makes the clients of a configuration answer a write with status 429, without sending it, while
// its namespace has used up the limit. The clients share the limit. They must not be built before.
func LimitWrites(config *rest.Config, limit WriteLimit) {
	budget := &writeBudget{limit: limit, now: time.Now, namespaces: map[string]*namespaceBudget{}}
	config.Wrap(func(sends http.RoundTripper) http.RoundTripper { return budgetedWrites{sends, budget} })
}

type unlimitedKey struct{}

// Unlimited returns a context for writes that no limit may delay, such as reverts. They count all the same.
func Unlimited(ctx context.Context) context.Context {
	return context.WithValue(ctx, unlimitedKey{}, true)
}

// writeBudget is the use of a limit. It is safe for concurrent use.
type writeBudget struct {
	limit WriteLimit
	now   func() time.Time

	mu         sync.Mutex
	namespaces map[string]*namespaceBudget
}

type namespaceBudget struct {
	left    float64 // bytes; less than 0 after large writes
	at      time.Time
	largest int // bytes of a write, reserved while one is under way
}

// maxNamespaces is the number of namespaces from which those that have used nothing are dropped.
const maxNamespaces = 1000

// reserve reserves bytes for a write, or returns false if the namespace has none left.
func (b *writeBudget) reserve(namespace string, always bool) (reserved int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, burst := b.now(), float64(b.limit.Burst)
	refill := func(n *namespaceBudget) {
		n.left = min(n.left+float64(b.limit.Refill)*(now.Sub(n.at).Seconds()/b.limit.Window.Seconds()), burst)
		n.at = now
	}
	n := b.namespaces[namespace]
	if n == nil {
		if len(b.namespaces) >= maxNamespaces {
			for name, other := range b.namespaces {
				if refill(other); other.left >= burst {
					delete(b.namespaces, name)
				}
			}
		}
		n = &namespaceBudget{left: burst, at: now, largest: firstWrite}
		b.namespaces[namespace] = n
	}
	refill(n)
	if n.left < float64(n.largest) && !always {
		return 0, false
	}
	n.left -= float64(n.largest)
	return n.largest, true
}

// settle replaces a reservation by the size of what was stored.
func (b *writeBudget) settle(namespace string, reserved, stored int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.namespaces[namespace]; n != nil {
		n.left += float64(reserved - stored)
		n.largest = max(n.largest, stored)
	}
}

// budgetedWrites counts the writes of clients. The answer to a write is the object as it is stored.
type budgetedWrites struct {
	http.RoundTripper
	budget *writeBudget
}

// RoundTrip sends a request, unless the namespace has used up the limit.
func (b budgetedWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	namespace, copies := costOf(r)
	if copies == 0 {
		return b.RoundTripper.RoundTrip(r)
	}
	reserved, ok := b.budget.reserve(namespace, r.Context().Value(unlimitedKey{}) != nil)
	if !ok {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return b.budget.refuse(r, namespace)
	}
	response, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		b.budget.settle(namespace, reserved, 0)
		return nil, err
	}
	response.Body = &countedBody{ReadCloser: response.Body, closed: func(size int) { b.budget.settle(namespace, reserved, copies*size) }}
	return response, nil
}

// WrappedRoundTripper returns the next round tripper, for the client library.
func (b budgetedWrites) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

// costOf returns the namespace of a write, and how many copies of the answer it makes the API server store.
// An eviction stores its pod twice, and the answer does not have it. The dry run of the replacement, which comes
// before, counts for that.
func costOf(r *http.Request) (namespace string, copies int) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodDelete {
		return "", 0
	}
	_, path, found := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(path, "/")
	if !found || len(parts) < 2 || !budgeted[parts[1]] {
		return "", 0
	}
	if r.URL.Query().Has("dryRun") {
		if r.Method == http.MethodPost && len(parts) == 2 && parts[1] == "pods" {
			return parts[0], 2
		}
		return "", 0
	}
	return parts[0], 1
}

// refuse returns the answer to a write that is not sent.
func (b *writeBudget) refuse(r *http.Request, namespace string) (*http.Response, error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests,
		Message: fmt.Sprintf("not sent: writes for namespace %s exceed the limit of %d MiB in %s", namespace, b.limit.Refill>>20, b.limit.Window),
	}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("print the answer to a write that is not sent: %w", err)
	}
	return &http.Response{
		Status: http.StatusText(http.StatusTooManyRequests), StatusCode: http.StatusTooManyRequests, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(body))),
		ContentLength: int64(len(body)), Request: r,
	}, nil
}

// countedBody reports how much was read of a body when it is closed.
type countedBody struct {
	io.ReadCloser
	size   int
	once   sync.Once
	closed func(size int)
}

// Read reads from the body.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.size += n
	return n, err
}

// Close closes the body.
func (c *countedBody) Close() error {
	defer c.once.Do(func() { c.closed(c.size) })
	return c.ReadCloser.Close()
}
