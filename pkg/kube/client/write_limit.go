package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// WriteLimit limits the bytes that a program writes to one namespace. etcd stores each revision of
// an object until compaction, so many small changes of large objects fill it.
type WriteLimit struct {
	Burst  int           // bytes
	Refill int           // bytes in each Window
	Window time.Duration // more than 0
	// PerPod is the number of bytes in each Window for each running pod. If their sum exceeds
	// Refill, it replaces Refill, and Burst grows by the same factor.
	PerPod int
}

// Limits of the programs. Together they allow less than 64 MiB in ten minutes for a namespace with
// few pods. The admission controller writes no objects of users.
var (
	RecommenderWrites = WriteLimit{Burst: 16 << 20, Refill: 24 << 20, Window: 10 * time.Minute, PerPod: 32 << 10}
	UpdaterWrites     = WriteLimit{Burst: 8 << 20, Refill: 12 << 20, Window: 10 * time.Minute, PerPod: 48 << 10}
)

const (
	// reservedPart is the divisor of Burst for the part reserved for urgent writes.
	reservedPart = 4
	// firstWrite is the assumed size of the first write to a namespace, in bytes.
	firstWrite = 16 << 10
	// shrinkPart is the divisor for the decrease of the assumed size after a smaller write.
	shrinkPart = 8
	// maxFrequentBytes is the size above which a VPA is written only once per Window.
	maxFrequentBytes = 256 << 10
	// idleCheck is the number of namespaces above which idle ones are dropped.
	idleCheck = 1000
)

type priority int

const (
	cleanup priority = iota - 1
	ordinary
	urgent
	unlimited
)

type priorityKey struct{}

func priorityOf(ctx context.Context) priority {
	p, _ := ctx.Value(priorityKey{}).(priority)
	return p
}

// Cleanup returns a context for writes that only remove annotations. Their limit does not grow with
// the number of pods, because users can add such annotations to all of their pods again and again.
func Cleanup(ctx context.Context) context.Context {
	if priorityOf(ctx) != ordinary {
		return ctx
	}
	return context.WithValue(ctx, priorityKey{}, cleanup)
}

// Urgent returns a context for writes that protect pods from harm, such as more memory after an
// out-of-memory kill. A part of the limit is reserved for them.
func Urgent(ctx context.Context) context.Context {
	return context.WithValue(ctx, priorityKey{}, max(urgent, priorityOf(ctx)))
}

// Unlimited returns a context for writes that are always sent, but count, such as reverts.
func Unlimited(ctx context.Context) context.Context {
	return context.WithValue(ctx, priorityKey{}, unlimited)
}

// WriteLimiter applies a WriteLimit to all clients of a program. It is safe for concurrent use.
type WriteLimiter struct {
	limit   WriteLimit
	now     func() time.Time
	refused *prometheus.CounterVec

	mu         sync.Mutex
	namespaces map[string]*namespaceWrites
	running    map[string]int // pods by namespace
}

type namespaceWrites struct {
	left     float64 // bytes, up to the burst; negative after large writes
	cleanup  float64 // bytes left for Cleanup writes, up to Burst
	at       time.Time
	expected int                  // bytes of the next write, reserved until it is done
	large    map[string]time.Time // last write of each VPA above maxFrequentBytes
	logged   time.Time
}

// NewWriteLimiter returns a limiter and registers its counter.
func NewWriteLimiter(limit WriteLimit, registry prometheus.Registerer) *WriteLimiter {
	l := &WriteLimiter{
		limit: limit, now: time.Now, namespaces: map[string]*namespaceWrites{}, running: map[string]int{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "loadline_write_limited_total",
			Help: "Writes that were not sent because of the write limit of their namespace, by resource.",
		}, []string{"resource"}),
	}
	registry.MustRegister(l.refused)
	for resource := range limitedResources { // increase() misses the first event of a new series
		l.refused.WithLabelValues(resource)
	}
	return l
}

// WatchPods counts the running pods of each namespace with an informer.
func (l *WriteLimiter) WatchPods(pods cache.SharedInformer) error {
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { l.countPod(nil, pod) },
		UpdateFunc: l.countPod,
		DeleteFunc: func(pod any) {
			if gone, ok := pod.(cache.DeletedFinalStateUnknown); ok {
				pod = gone.Obj
			}
			l.countPod(pod, nil)
		},
	})
	if err != nil {
		return fmt.Errorf("watch running pods: %w", err)
	}
	return nil
}

// RunningPods returns the number of running pods in a namespace.
func (l *WriteLimiter) RunningPods(namespace string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[namespace]
}

func (l *WriteLimiter) countPod(before, after any) {
	namespace, wasRunning := runningIn(before)
	newNamespace, isRunning := runningIn(after)
	if wasRunning == isRunning {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if isRunning {
		l.running[newNamespace]++
		return
	}
	if l.running[namespace]--; l.running[namespace] <= 0 {
		delete(l.running, namespace)
	}
}

func runningIn(object any) (namespace string, running bool) {
	switch o := object.(type) {
	case *Pod:
		return o.GetNamespace(), o.statusFields.value.phase == corev1.PodRunning
	case *corev1.Pod:
		return o.Namespace, o.Status.Phase == corev1.PodRunning
	}
	return "", false
}

func (l *WriteLimiter) factor(namespace string) float64 {
	return max(1, float64(l.running[namespace])*float64(l.limit.PerPod)/float64(l.limit.Refill))
}

func (l *WriteLimiter) reserve(w write, p priority) (reserved int, refusal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, now := l.refill(w.namespace), l.now()
	factor := l.factor(w.namespace)
	burst := float64(l.limit.Burst) * factor
	switch last, large := n.large[w.name]; {
	case p <= ordinary && w.resource == vpas && large && now.Sub(last) < l.limit.Window:
		refusal = fmt.Sprintf("not sent: VPA %s/%s exceeds %d KiB, so it is written once per %s",
			w.namespace, w.name, maxFrequentBytes>>10, l.limit.Window)
	case p == cleanup && n.cleanup < float64(n.expected):
		refusal = fmt.Sprintf("not sent: namespace %s used its limit of writes that only remove annotations (burst %d MiB, %d MiB per %s)",
			w.namespace, l.limit.Burst>>20, l.limit.Refill>>20, l.limit.Window)
	case p <= ordinary && n.left < burst/reservedPart+float64(n.expected), p == urgent && n.left <= 0:
		refusal = fmt.Sprintf("not sent: namespace %s used its write limit (burst %d MiB, %d MiB per %s)",
			w.namespace, int(burst)>>20, int(float64(l.limit.Refill)*factor)>>20, l.limit.Window)
	default:
		n.take(p, float64(n.expected))
		return n.expected, ""
	}
	l.refused.WithLabelValues(w.resource).Inc()
	if now.Sub(n.logged) >= l.limit.Window {
		n.logged = now
		klog.InfoS("Delaying writes because of the write limit of a namespace",
			"namespace", w.namespace, "resource", w.resource, "reason", refusal)
	}
	return 0, refusal
}

func (l *WriteLimiter) refill(namespace string) *namespaceWrites {
	now := l.now()
	update := func(name string, n *namespaceWrites) (idle bool) {
		factor := l.factor(name)
		burst := float64(l.limit.Burst) * factor
		refill := float64(l.limit.Refill) * (now.Sub(n.at).Seconds() / l.limit.Window.Seconds())
		n.left, n.cleanup = min(n.left+refill*factor, burst), min(n.cleanup+refill, float64(l.limit.Burst))
		n.at = now
		maps.DeleteFunc(n.large, func(_ string, last time.Time) bool { return now.Sub(last) >= l.limit.Window })
		return n.left >= burst && n.cleanup >= float64(l.limit.Burst) && len(n.large) == 0
	}
	n := l.namespaces[namespace]
	if n == nil {
		if len(l.namespaces) >= idleCheck {
			maps.DeleteFunc(l.namespaces, update)
		}
		n = &namespaceWrites{left: math.Inf(1), cleanup: math.Inf(1), at: now, expected: firstWrite, large: map[string]time.Time{}}
		l.namespaces[namespace] = n
	}
	update(namespace, n)
	return n
}

func (n *namespaceWrites) take(p priority, bytes float64) {
	if n.left -= bytes; p == cleanup {
		n.cleanup -= bytes
	}
}

// settle replaces a reservation by the size of the stored object.
func (l *WriteLimiter) settle(w write, p priority, reserved, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.namespaces[w.namespace]
	if n == nil {
		return
	}
	stored := w.copies * size
	n.take(p, float64(stored-reserved))
	n.expected = max(stored, n.expected-n.expected/shrinkPart)
	if w.resource == vpas && size > maxFrequentBytes {
		n.large[w.name] = l.now()
	}
}

const vpas = "verticalpodautoscalers"

// limitedResources excludes resources with few writes, such as Leases.
var limitedResources = map[string]bool{
	"events": true, "pods": true, vpas: true, "verticalpodautoscalercheckpoints": true, "sizingrecords": true,
}

const writeLimitCause metav1.CauseType = "LoadlineWriteLimit"

// IsWriteLimited reports whether a write was not sent because of the limit of its namespace.
func IsWriteLimited(err error) bool { return apierrors.HasStatusCause(err, writeLimitCause) }

// Limit makes clients of a configuration fail writes with status 429 while the namespace is over
// its limit. See IsWriteLimited. Call it before building clients.
func (l *WriteLimiter) Limit(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedWrites{next, l} })
}

// limitedWrites limits and counts writes. The response to a write is the stored object.
type limitedWrites struct {
	http.RoundTripper
	limiter *WriteLimiter
}

// RoundTrip sends a request, unless the namespace is over its limit.
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

type write struct {
	namespace, resource, name string
	copies                    int // number of times the response is stored
}

// writeOf returns the write of a request, if it counts. An eviction stores its pod twice, but its
// response does not contain the pod, so the preceding dry run of the replacement counts instead.
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

// refuse returns a response, because the event recorder would retry after an error.
func refuse(r *http.Request, message string) (*http.Response, error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests, Message: message,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: writeLimitCause, Message: message}}},
	}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encode the response to an unsent write: %w", err)
	}
	return &http.Response{
		Status: http.StatusText(http.StatusTooManyRequests), StatusCode: http.StatusTooManyRequests,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(body))), ContentLength: int64(len(body)), Request: r,
	}, nil
}

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
