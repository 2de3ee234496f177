package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Gate is a proxy between a program and the API server. It can hold a request or its response, so
// that the program can be ended at exactly that point.
type Gate struct {
	Kubeconfig string // of the program, leads to the gate

	server *http.Server
	proxy  *httputil.ReverseProxy
	mu     sync.Mutex
	hold   *hold // nil: everything passes
	grants func(*http.Request)
}

type hold struct {
	match  func(*http.Request) bool
	answer bool // hold the response of the API server instead
	once   sync.Once
	held   chan struct{} // closed once a request is held
}

// Gate opens a gate for a program, which must use the gate's kubeconfig for the flag --kubeconfig.
func (c *Cluster) Gate(ctx context.Context, name, label string) (*Gate, error) {
	credentials, err := c.Credentials(ctx, name, label+"-gate")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", credentials)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &Gate{Kubeconfig: filepath.Join(c.Dir, label+"-through-gate.kubeconfig")}
	g.grants = func(*http.Request) {}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode < http.StatusMultipleChoices {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.grants(r.Request)
			}
			return nil
		},
		FlushInterval: -1, // for watches
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	g.server = &http.Server{Handler: http.HandlerFunc(g.serve)}
	go func() { _ = g.server.Serve(listener) }()
	return g, WriteKubeconfig(g.Kubeconfig, "http://"+listener.Addr().String())
}

// Close ends all connections.
func (g *Gate) Close() error { return g.server.Close() }

// HoldRequest keeps matching requests from the API server until the program is ended. The channel
// is closed at the first one.
func (g *Gate) HoldRequest(match func(*http.Request) bool) <-chan struct{} {
	return g.set(&hold{match: match, held: make(chan struct{})})
}

// HoldAnswer forwards matching requests to the API server and keeps the responses until the program
// is ended. The channel is closed at the first one.
func (g *Gate) HoldAnswer(match func(*http.Request) bool) <-chan struct{} {
	return g.set(&hold{match: match, answer: true, held: make(chan struct{})})
}

// After returns a match function. It matches like then, once the API server has granted a later
// request that matches first. Only the last call of After has an effect.
func (g *Gate) After(first, then func(*http.Request) bool) func(*http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	granted := false
	g.grants = func(r *http.Request) { granted = granted || first(r) }
	return func(r *http.Request) bool { return granted && then(r) }
}

// Open lets all later requests pass.
func (g *Gate) Open() { g.set(nil) }

func (g *Gate) set(h *hold) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold = h; h == nil {
		return nil
	}
	return h.held
}

func (g *Gate) holds(r *http.Request) *hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold == nil || !g.hold.match(r) {
		return nil
	}
	return g.hold
}

func (g *Gate) serve(w http.ResponseWriter, r *http.Request) {
	h := g.holds(r)
	if h == nil {
		g.proxy.ServeHTTP(w, untilAnswered(r))
		return
	}
	if h.answer {
		g.proxy.ServeHTTP(httptest.NewRecorder(), untilAnswered(r))
	} else {
		_, _ = io.Copy(io.Discard, r.Body) // required to detect the end of the connection
	}
	h.once.Do(func() { close(h.held) })
	<-r.Context().Done()
}

// untilAnswered keeps a write from ending with its client, which may not wait for the response:
// After needs the result of the API server.
func untilAnswered(r *http.Request) *http.Request {
	if r.Method == http.MethodGet {
		return r
	}
	return r.WithContext(context.WithoutCancel(r.Context()))
}
