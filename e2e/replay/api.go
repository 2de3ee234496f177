// Package replay plays recordings to a recommender process on the local control plane and to the
// backtester, so that tests can compare both.
//
// Recording is the recorded usage of a container, placed in time. API is a proxy of the API server
// and plays recordings as the metrics API: one recorded minute for each iteration of the
// recommender, at any pace. Past is a Prometheus with recordings as history. Backtest runs `kubectl
// loadline backtest` on the same recordings, and Story holds its events.
//
// The package starts no recommender and compares nothing. The tests do.
package replay

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// API is an API server for one recommender. It forwards all requests to the real one, except
// requests for usage, which it answers itself. Each answer is one recorded minute later than the
// previous one.
type API struct {
	server *httptest.Server

	mu    sync.Mutex
	clock time.Time // of the next answer
	until time.Time // answers are empty from here on
	empty int       // empty answers since the last Advance or AwaitPass
	pods  []*Pod
}

// Pod is a pod with one container that plays a recording.
type Pod struct {
	Namespace, Name string
	Recording       *Recording
	down            []span
}

type span struct{ from, to time.Time }

// NewAPI returns a proxy of the API server of a configuration, with a clock that starts at the
// given time. It works until Close.
func NewAPI(config *rest.Config, start time.Time) (*API, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config)) // requests carry their own credentials
	if err != nil {
		return nil, err
	}
	a := &API{clock: start, until: start}
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,                         // for watches
		ErrorLog:      log.New(io.Discard, "", 0), // a killed program aborts its requests
	}
	a.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/metrics.k8s.io/") && strings.HasSuffix(r.URL.Path, "/pods") {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(a.answer())
			return
		}
		pass.ServeHTTP(w, r)
	}))
	a.server.Config.ErrorLog = pass.ErrorLog
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	return a, nil
}

// Close stops the server.
func (a *API) Close() {
	a.server.CloseClientConnections()
	a.server.Close()
}

// Redirect makes a kubeconfig file point to the server.
func (a *API) Redirect(path string) error {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority = a.server.URL, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	}
	return clientcmd.WriteToFile(*config, path)
}

// Play adds a pod that plays its recording.
func (a *API) Play(p *Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods = append(a.pods, p)
}

// Down makes a pod show no usage from one time until another.
func (a *API) Down(p *Pod, from, to time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.down = append(p.down, span{from, to})
}

// answer returns the usage of the next minute, or an empty list from until on.
func (a *API) answer() v1beta1.PodMetricsList {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := v1beta1.PodMetricsList{
		TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: "metrics.k8s.io/v1beta1"},
		Items:    []v1beta1.PodMetrics{},
	}
	if !a.clock.Before(a.until) {
		a.empty++
		return list
	}
	for _, p := range a.pods {
		if m, some := p.metrics(a.clock); some {
			list.Items = append(list.Items, m)
		}
	}
	a.clock = a.clock.Add(Minute)
	return list
}

func (p *Pod) metrics(at time.Time) (m v1beta1.PodMetrics, some bool) {
	s, some := p.Recording.At(at)
	for _, d := range p.down {
		some = some && (at.Before(d.from) || !at.Before(d.to))
	}
	if !some {
		return m, false
	}
	use := corev1.ResourceList{}
	if s.Nanocores >= 0 {
		use[corev1.ResourceCPU] = *resource.NewScaledQuantity(s.Nanocores, resource.Nano)
	}
	if s.Bytes >= 0 {
		use[corev1.ResourceMemory] = *resource.NewQuantity(s.Bytes, resource.BinarySI)
	}
	m.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}
	m.Timestamp, m.Window = metav1.NewTime(at), metav1.Duration{Duration: Minute}
	m.Containers = []v1beta1.ContainerMetrics{{Name: Container, Usage: use}}
	return m, true
}

// Advance shows the recommender the minutes before a time, one in each iteration, and waits until
// it has processed the last one, which is when it requests more. It returns the last minute that
// was shown.
func (a *API) Advance(ctx context.Context, until time.Time) (last time.Time, err error) {
	a.mu.Lock()
	a.until, a.empty = until, 0
	a.mu.Unlock()
	if err := a.await(ctx, 1); err != nil {
		return last, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clock.Add(-Minute), nil
}

// AwaitPass waits until an iteration without usage has ended that began after the call.
func (a *API) AwaitPass(ctx context.Context) error {
	a.mu.Lock()
	a.empty = 0
	a.mu.Unlock()
	return a.await(ctx, 3) // the first may belong to an earlier iteration
}

func (a *API) await(ctx context.Context, empty int) error {
	for {
		a.mu.Lock()
		enough, at := a.empty >= empty, a.clock
		a.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the recommender requested usage only up to %s: %w", at.UTC(), context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
}
