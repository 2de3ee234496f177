package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// vpas is the resource of VPAs.
const vpas = "verticalpodautoscalers"

// limitedResources are the resources whose writes count. Others, such as Leases, are few.
var limitedResources = map[string]bool{
	"events": true, "pods": true, vpas: true, "verticalpodautoscalercheckpoints": true, "sizingrecords": true,
}

// writeLimitCause is the cause in the status of a write that a WriteLimiter refuses.
const writeLimitCause metav1.CauseType = "LoadlineWriteLimit"

// IsWriteLimited reports whether a write was not sent because of the write limit of its namespace.
func IsWriteLimited(err error) bool { return apierrors.HasStatusCause(err, writeLimitCause) }

// Limit makes the clients of a configuration answer a write with status 429, without sending it,
// while its namespace has used its limit. IsWriteLimited reports such errors. Call it before
// building clients.
func (l *WriteLimiter) Limit(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedWrites{next, l} })
}

// limitedWrites counts the writes of clients. The answer to a write is the object as it is stored.
type limitedWrites struct {
	http.RoundTripper
	limiter *WriteLimiter
}

// RoundTrip sends a request, unless the namespace has used its limit.
func (t limitedWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	w, counts := writeOf(r)
	if !counts {
		return t.RoundTripper.RoundTrip(r)
	}
	p := priorityOf(r.Context())
	reserved, refusal := t.limiter.reserve(w, p)
	if refusal != "" {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return refuse(r, refusal)
	}
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		t.limiter.settle(w, p, reserved, 0)
		return nil, err
	}
	response.Body = &countedBody{ReadCloser: response.Body, closed: func(size int) { t.limiter.settle(w, p, reserved, size) }}
	return response, nil
}

// WrappedRoundTripper returns the next round tripper, for the client library.
func (t limitedWrites) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// write is a request that makes the API server store an object.
type write struct {
	namespace, resource, name string
	copies                    int // of the answer that are stored
}

// writeOf returns the write of a request, if it counts. An eviction stores its pod twice, and its
// answer does not contain the pod. The dry run of the replacement, which comes before, counts for
// that.
func writeOf(r *http.Request) (w write, counts bool) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodDelete {
		return write{}, false
	}
	_, path, found := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(path, "/")
	if !found || len(parts) < 2 || !limitedResources[parts[1]] {
		return write{}, false
	}
	w = write{namespace: parts[0], resource: parts[1], copies: 1}
	if len(parts) > 2 {
		w.name = parts[2]
	}
	if r.URL.Query().Has("dryRun") {
		w.copies = 2
		return w, r.Method == http.MethodPost && len(parts) == 2 && w.resource == "pods"
	}
	return w, true
}

// refuse answers a write that is not sent. The event recorder would retry after an error.
func refuse(r *http.Request, message string) (*http.Response, error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests, Message: message,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: writeLimitCause, Message: message}}},
	}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("print the answer to a write that is not sent: %w", err)
	}
	return &http.Response{
		Status: http.StatusText(http.StatusTooManyRequests), StatusCode: http.StatusTooManyRequests,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(body))), ContentLength: int64(len(body)), Request: r,
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
