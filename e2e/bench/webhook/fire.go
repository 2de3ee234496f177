package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"loadline.dev/loadline/e2e/harness"
)

// sender sends reviews of new pods over HTTP/1.1, as the API server does, but with little work of
// its own.
type sender struct {
	address string
	trust   *tls.Config
	reviews [][]byte // requests with headers, one for each VPA

	mu   sync.Mutex
	idle []*idleConn
}

// maxAnswer exceeds the length of any answer, in bytes.
const maxAnswer = 64 << 10

type idleConn struct {
	*tls.Conn
	buffer []byte
}

// newSender reads the address and CA of the webhook from the API server, and creates one review for
// each VPA from a pod with the API server's defaults.
func newSender(ctx context.Context, cluster *harness.Cluster, owners map[string]string) (*sender, error) {
	var registration *admissionregistrationv1.MutatingWebhookConfiguration
	err := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (registered bool, err error) {
		registration, err = cluster.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "vpa-webhook-config", metav1.GetOptions{})
		return err == nil && len(registration.Webhooks) > 0, err // the manifests have one without webhooks
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the registration of the webhook: %w", err)
	}
	way := registration.Webhooks[0].ClientConfig
	target, err := url.Parse(*way.URL)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(way.CABundle)
	g := &sender{address: target.Host, trust: &tls.Config{RootCAs: roots, ServerName: target.Hostname(), NextProtos: []string{"http/1.1"}}}
	for app, set := range owners {
		var number int
		if _, err := fmt.Sscanf(app, "app-%d", &number); err != nil {
			continue // not from this benchmark
		}
		g.reviews = append(g.reviews, []byte(app+" "+set)) // sorted first, for comparable runs
	}
	slices.SortFunc(g.reviews, bytes.Compare)
	sets, err := cluster.Kube.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	byName := map[string]int{}
	for i := range sets.Items {
		byName[sets.Items[i].Name] = i
	}
	var example *corev1.Pod
	for i, names := range g.reviews {
		_, set, _ := strings.Cut(string(names), " ")
		owner := &sets.Items[byName[set]]
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: owner.Name + "-", Namespace: owner.Namespace, Labels: owner.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner.Name, UID: owner.UID, Controller: new(true), BlockOwnerDeletion: new(true)}}},
			Spec: owner.Spec.Template.Spec}
		if example == nil {
			if example, err = asStored(ctx, cluster, pod); err != nil {
				return nil, err
			}
		}
		pod.ManagedFields, pod.Spec, pod.Status = example.ManagedFields, example.Spec, example.Status
		body, err := encode(pod)
		if err != nil {
			return nil, err
		}
		g.reviews[i] = slices.Concat(fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", g.address, len(body)), body)
	}
	return g, nil
}

// asStored returns a pod with the additions of the API server. It uses a dry run in a namespace
// without VPAs, so that the resources stay unchanged.
func asStored(ctx context.Context, cluster *harness.Cluster, pod *corev1.Pod) (*corev1.Pod, error) {
	pod = pod.DeepCopy()
	pod.Namespace = metav1.NamespaceDefault
	return cluster.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func encode(pod *corev1.Pod) ([]byte, error) {
	raw, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	r := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(pod.GenerateName), Namespace: pod.Namespace, Operation: admissionv1.Create,
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		},
	}
	r.Request.Object.Raw = raw
	return json.Marshal(r)
}

func (g *sender) size() int {
	sum := 0
	for _, body := range g.reviews {
		sum += len(body)
	}
	return sum / len(g.reviews)
}

// fire sends requests at a steady rate, independent of earlier answers, and returns their
// durations, sorted.
func (g *sender) fire(ctx context.Context, rate int, duration time.Duration, shoot func(ctx context.Context, i int) (time.Duration, error)) ([]time.Duration, error) {
	// Garbage collection in this process would delay the requests.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n := int(duration.Seconds() * float64(rate))
	took := make([]time.Duration, n)
	errs := make([]error, n)
	var open sync.WaitGroup
	for i, start := 0, time.Now(); i < n; i++ {
		// Sleep is inexact. Late requests are sent at once.
		if wait := time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		open.Go(func() { took[i], errs[i] = shoot(ctx, i) })
	}
	open.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return took, nil
}

// review sends a review, which must be answered with a patch. VPAs come in a scattered order.
func (g *sender) review(ctx context.Context, i int) (time.Duration, error) {
	return g.ask(ctx, g.reviews[i*7919%len(g.reviews)], `"patch":`)
}

// probe sends a request that requires no work of the webhook.
func (g *sender) probe(ctx context.Context, _ int) (time.Duration, error) {
	return g.ask(ctx, fmt.Appendf(nil, "GET /probe HTTP/1.1\r\nHost: %s\r\n\r\n", g.address), "OK")
}

// ask sends a request over an idle connection, or over a new one. Like the API server, it retries
// if the webhook closed the connection while it was idle.
func (g *sender) ask(ctx context.Context, request []byte, expected string) (time.Duration, error) {
	start := time.Now()
	for l := g.takeIdle(); l != nil; l = g.takeIdle() {
		answer, err := l.exchange(request)
		if closedIdle(err) {
			continue
		}
		return g.check(l, answer, err, expected, time.Since(start))
	}
	l, err := g.dial(ctx)
	if err != nil {
		return 0, err
	}
	answer, err := l.exchange(request)
	return g.check(l, answer, err, expected, time.Since(start))
}

// closedIdle reports whether an exchange failed because the other side had closed the connection
// before it read the request.
func closedIdle(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// check returns the duration of an exchange with the expected answer, and keeps the connection.
func (g *sender) check(l *idleConn, answer []byte, err error, expected string, took time.Duration) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) || !bytes.Contains(answer, []byte(expected)) {
		return 0, fmt.Errorf("a request was answered without %s: %s", expected, answer)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = append(g.idle, l)
	return took, nil
}

// exchange sends a request and reads its answer. The error [io.EOF] means that the other side
// closed the connection before it answered.
func (l *idleConn) exchange(request []byte) ([]byte, error) {
	if _, err := l.Write(request); err != nil {
		return nil, err
	}
	return l.answer()
}

// answer reads one answer with its header. It parses only as much as required to find the end,
// because its time counts.
func (l *idleConn) answer() ([]byte, error) {
	for read := 0; ; {
		if read == len(l.buffer) {
			return nil, fmt.Errorf("an answer is longer than %d bytes: %s", len(l.buffer), l.buffer)
		}
		n, err := l.Read(l.buffer[read:])
		if read > 0 && errors.Is(err, io.EOF) {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		read += n
		header, body, whole := bytes.Cut(l.buffer[:read], []byte("\r\n\r\n"))
		if !whole {
			continue
		}
		_, rest, found := bytes.Cut(header, []byte("Content-Length: "))
		digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
		length, err := strconv.Atoi(string(digits))
		if !found || err != nil {
			return nil, fmt.Errorf("an answer does not say how long it is: %s", header)
		}
		if len(body) >= length {
			return l.buffer[:read], nil
		}
	}
}

func (g *sender) dial(ctx context.Context) (*idleConn, error) {
	connection, err := (&tls.Dialer{Config: g.trust}).DialContext(ctx, "tcp", g.address)
	if err != nil {
		return nil, err
	}
	return &idleConn{Conn: connection.(*tls.Conn), buffer: make([]byte, maxAnswer)}, nil
}

// takeIdle takes the most recently used idle connection, or nil if there is none.
func (g *sender) takeIdle() *idleConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.idle) - 1
	if last < 0 {
		return nil
	}
	l := g.idle[last]
	g.idle = g.idle[:last]
	return l
}
