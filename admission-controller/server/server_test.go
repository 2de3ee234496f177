package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/process"
)

type recorder struct {
	mu       sync.Mutex
	requests []string
	steps    map[string]int
	causes   []Cause
}

func (r *recorder) Request(status, resource string, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, status+" "+resource)
}

func (r *recorder) Step(step string, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.steps == nil {
		r.steps = map[string]int{}
	}
	r.steps[step]++
}

func (r *recorder) Problem(cause Cause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.causes = append(r.causes, cause)
}

func pods(answer func() Answer) Handler {
	return Handler{Resource: metav1.GroupResource{Resource: "pods"}, Label: "Pod", Answer: func(context.Context, *admissionv1.AdmissionRequest) Answer { return answer() }}
}

const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","resource":{"group":"","version":"v1","resource":"pods"},"namespace":"ns","object":{}}}`

func TestServer_AnswersReviews(t *testing.T) {
	refusal := &metav1.Status{Status: "Failure", Code: 422, Reason: metav1.StatusReasonInvalid}
	for _, tc := range []struct {
		name              string
		contentType, body string
		answer            func() Answer
		code              int
		want              string // empty for an empty body
		request           string
		causes            []Cause
	}{
		{name: "wrong content type", contentType: "text/plain", body: review, code: 200, request: "error unknown",
			causes: []Cause{CauseContentType}},
		{name: "content type with charset", contentType: "application/json; charset=utf-8", body: review, code: 200,
			request: "error unknown", causes: []Cause{CauseContentType}},
		{name: "body too large", contentType: "application/json", body: strings.Repeat(" ", MaxBody+1), code: 413, request: "error unknown",
			causes: []Cause{CauseTooLarge}},
		{name: "body is not JSON", contentType: "application/json", body: "nonsense", code: 200, want: `{"uid":"","allowed":true}`,
			request: "error unknown", causes: []Cause{CauseBody}},
		{name: "empty body", contentType: "application/json", code: 200, want: `{"uid":"","allowed":true}`, request: "error unknown",
			causes: []Cause{CauseBody}},
		{name: "review without request", contentType: "application/json", body: `{"kind":"AdmissionReview"}`, code: 200,
			want: `{"uid":"","allowed":true}`, request: "error unknown", causes: []Cause{CauseBody}},
		{name: "unsupported resource", contentType: "application/json", body: strings.ReplaceAll(review, "pods", "services"), code: 200,
			want: `{"uid":"u1","allowed":true}`, request: "error unknown", causes: []Cause{CauseResource}},
		{name: "no change", contentType: "application/json", body: review, answer: func() Answer { return Answer{} }, code: 200,
			want: `{"uid":"u1","allowed":true}`, request: "skipped Pod"},
		{name: "patch", contentType: "application/json", body: review, answer: func() Answer {
			return Answer{Patch: []client.PatchOperation{client.PatchAdd("/a", "b")}, Warnings: []string{"w"}}
		}, code: 200, request: "applied Pod",
			want: `{"uid":"u1","allowed":true,"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6ImIifV0=",` +
				`"patchType":"JSONPatch","warnings":["w"]}`},
		{name: "refusal", contentType: "application/json", body: review, answer: func() Answer { return Answer{Refusal: refusal} },
			code: 200, want: `{"uid":"u1","allowed":false,"status":{"metadata":{},"status":"Failure","reason":"Invalid","code":422}}`,
			request: "skipped Pod"},
		{name: "error", contentType: "application/json", body: review,
			answer: func() Answer { return Answer{Err: errors.New("no owner"), Cause: CauseOwner} }, code: 200,
			want: `{"uid":"u1","allowed":true,"warnings":["VPA admission controller: allowed unchanged: no owner"]}`, request: "error Pod",
			causes: []Cause{CauseOwner}},
		{name: "panic", contentType: "application/json", body: review, answer: func() Answer { panic("boom") }, code: 200,
			want:    `{"uid":"u1","allowed":true,"warnings":["VPA admission controller: allowed unchanged: panic: boom"]}`,
			request: "error Pod", causes: []Cause{CausePanic}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &recorder{}
			h := New(Config{Environment: process.OS{}, Handlers: []Handler{pods(tc.answer)}, Recorder: r}).Handler(klog.Background())
			request := httptest.NewRequest(http.MethodPost, "/any/path", strings.NewReader(tc.body))
			request.Header.Set("Content-Type", tc.contentType)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request)
			require.Equal(t, tc.code, w.Code)
			require.Equal(t, []string{tc.request}, r.requests)
			require.Equal(t, tc.causes, r.causes)
			require.Equal(t, 1, r.steps[StepTotal])
			if tc.want == "" {
				require.Empty(t, w.Body.String())
				return
			}
			var got struct {
				APIVersion, Kind string
				Response         json.RawMessage
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			require.Equal(t, "admission.k8s.io/v1 AdmissionReview", got.APIVersion+" "+got.Kind)
			require.JSONEq(t, tc.want, string(got.Response))
		})
	}
}

func TestServer_ServesOnlyWebhookAndProbe(t *testing.T) {
	h := New(Config{Environment: process.OS{}, Recorder: &recorder{}}).Handler(klog.Background())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil))
	require.Empty(t, w.Body.String())
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, ProbePath, nil))
	require.Equal(t, "OK", w.Body.String())
}

func selfSigned(t *testing.T) (tls.Certificate, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestServer_ServesTLSAndDrains(t *testing.T) {
	cert, cas := selfSigned(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	s := New(Config{Environment: process.OS{},
		TLS:      &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		Recorder: &recorder{},
		Handlers: []Handler{pods(func() Answer { close(entered); <-leave; return Answer{} })},
		Drain:    50 * time.Millisecond,
	})
	require.NoError(t, s.Listen())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()

	probe := func(ctx context.Context, host string, cas []byte) error {
		route, err := s.SelfProbe(host, cas)
		require.NoError(t, err)
		p := Prober{Environment: process.OS{}}
		defer p.close()
		return p.Probe(ctx, route, time.Now())
	}
	require.NoError(t, probe(ctx, "127.0.0.1", cas))
	require.NoError(t, probe(ctx, "any.name", nil), "without CAs the certificate is not looked at")
	err := probe(ctx, "10.1.1.1", cas)
	require.ErrorContains(t, err, "probe own webhook at 127.0.0.1:")
	require.ErrorContains(t, err, "not 10.1.1.1")
	_, others := selfSigned(t)
	require.Error(t, probe(ctx, "127.0.0.1", others))

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cas)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	answered := make(chan string)
	go func() {
		response, err := client.Post("https://"+strings.Replace(s.listener.Addr().String(), "[::]", "127.0.0.1", 1)+"/", "application/json", bytes.NewBufferString(review))
		if err != nil {
			answered <- err.Error()
			return
		}
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	<-entered
	stop()
	require.NoError(t, probe(context.Background(), "127.0.0.1", cas), "still answers while it drains")
	time.AfterFunc(200*time.Millisecond, func() { close(leave) })
	require.Contains(t, <-answered, `"allowed":true`, "an open request is answered")
	require.NoError(t, <-ended)
	require.Error(t, probe(context.Background(), "127.0.0.1", cas))
}

// Frequent probes must not cost a handshake each.
func TestProber_ReusesConnectionOfSameRoute(t *testing.T) {
	cert, cas := selfSigned(t)
	var handshakes atomic.Int32
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		handshakes.Add(1)
		return &cert, nil
	}}
	s := New(Config{Environment: process.OS{}, TLS: config, Recorder: &recorder{}})
	require.NoError(t, s.Listen())
	go func() { _ = s.Run(t.Context()) }()
	route, err := s.SelfProbe("127.0.0.1", cas)
	require.NoError(t, err)
	now := time.Now()
	p := Prober{Environment: process.OS{}}
	for i := range 6 {
		require.NoError(t, p.Probe(t.Context(), route, now.Add(time.Duration(i)*reconnectInterval/6)))
	}
	require.EqualValues(t, 1, handshakes.Load())
	require.NoError(t, p.Probe(t.Context(), route, now.Add(reconnectInterval)))
	require.EqualValues(t, 2, handshakes.Load(), "it is old")
	_, others := selfSigned(t)
	changed := route
	changed.CAs = others
	require.Error(t, p.Probe(t.Context(), changed, now.Add(reconnectInterval)), "the API server trusts other CAs now")
	require.NoError(t, p.Probe(t.Context(), route, now.Add(reconnectInterval)), "a failure is not kept")
	changed = route
	changed.Address = "127.0.0.1:1"
	require.ErrorContains(t, p.Probe(t.Context(), changed, now.Add(reconnectInterval)), "127.0.0.1:1")
	require.EqualValues(t, 4, handshakes.Load())
}

func served(t *testing.T, config Config) (*http.Client, string, context.CancelFunc) {
	config.Environment = process.OS{}
	cert, cas := selfSigned(t)
	config.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if config.Recorder == nil {
		config.Recorder = &recorder{}
	}
	s := New(config)
	require.NoError(t, s.Listen())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	route, err := s.SelfProbe("127.0.0.1", cas)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cas)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, "https://" + route.Address + "/", stop
}

func send(t *testing.T, client *http.Client, url string) *http.Response {
	response, err := client.Post(url, "application/json", bytes.NewBufferString(review))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	return response
}

func TestServer_AfterDoesNotDelayResponse(t *testing.T) {
	received := make(chan struct{})
	client, url, _ := served(t, Config{Handlers: []Handler{pods(func() Answer { return Answer{After: func() { <-received }} })}})
	defer close(received)
	client.Timeout = 10 * time.Second
	require.Equal(t, http.StatusOK, send(t, client, url).StatusCode)
}

func TestServer_DrainingClosesConnections(t *testing.T) {
	client, url, stop := served(t, Config{Handlers: []Handler{pods(func() Answer { return Answer{} })}, Drain: 3 * time.Second})
	require.False(t, send(t, client, url).Close, "connections are kept")
	stop()
	require.Eventually(t, func() bool { return send(t, client, url).Close }, 2900*time.Millisecond, time.Millisecond,
		"while it drains it answers and sends the client elsewhere")
}

func TestServer_DoesNotOfferHTTP2(t *testing.T) {
	client, url, _ := served(t, Config{Handlers: []Handler{pods(func() Answer { return Answer{} })}})
	require.Equal(t, "HTTP/1.1", send(t, client, url).Proto)
}

func TestServer_ListenFailsOnPortInUse(t *testing.T) {
	taken := New(Config{Environment: process.OS{}})
	require.NoError(t, taken.Listen())
	defer func() { require.NoError(t, taken.Close()) }()
	port := taken.listener.Addr().(*net.TCPAddr).Port
	require.ErrorContains(t, New(Config{Environment: process.OS{}, Port: port}).Listen(), "address already in use")
}

func TestWarning_IsShortened(t *testing.T) {
	require.Len(t, warning(strings.Repeat("x", 1000)), maxWarning)
}

func reviewOnce(body string, answer func() Answer) (*recorder, string) {
	r := &recorder{}
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	New(Config{Environment: process.OS{}, Handlers: []Handler{pods(answer)}, Recorder: r}).Handler(klog.Background()).ServeHTTP(w, request)
	return r, w.Body.String()
}

func TestServer_AllowsReviewsWithMissingFields(t *testing.T) {
	for _, body := range []string{`{}`, `{"request":null}`, `{"request":{}}`, `{"request":{"uid":"u","resource":null}}`, `{"request":{"resource":{"version":"v1","resource":"pods"}}}`, `{"request":7}`} {
		_, answer := reviewOnce(body, func() Answer { return Answer{} })
		require.Contains(t, answer, `"allowed":true`, body)
	}
}

func TestServer_AllowsOnPanicWhileDecoding(t *testing.T) {
	r := &recorder{}
	h := &reviewer{recorder: r, log: klog.Background(), memory: newMemory(0, 0), answers: newSlots(1), decodeRequest: func([]byte) (*admissionv1.AdmissionRequest, error) { panic("boom") }}
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	require.Contains(t, w.Body.String(), `"allowed":true`)
	require.Equal(t, []Cause{CausePanic}, r.causes)
	require.Equal(t, []string{"error unknown"}, r.requests)
}

func logged() (klog.Logger, *bytes.Buffer) {
	var text bytes.Buffer
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text), textlogger.Verbosity(9))), &text
}

var named = strings.Replace(review, `"namespace"`, `"name":"web-1","namespace"`, 1)

func TestProblems_AreCountedAndReturned(t *testing.T) {
	r, answer := reviewOnce(review, func() Answer { return Answer{Err: errors.New("no such owner"), Cause: CauseOwner} })
	require.Equal(t, []Cause{CauseOwner}, r.causes)
	require.Equal(t, []string{"error Pod"}, r.requests)
	require.Contains(t, answer, "allowed unchanged: no such owner")
	require.Contains(t, answer, `"allowed":true`)
}

func TestProblems_AreLoggedWithObject(t *testing.T) {
	for _, tc := range []struct {
		name   string
		body   string
		answer func() Answer
		writer http.ResponseWriter
		want   []string
	}{
		{name: "unknown owner", body: named, answer: func() Answer { return Answer{Err: errors.New("no such owner"), Cause: CauseOwner} },
			writer: httptest.NewRecorder(), want: []string{`"no such owner"`, `cause="owner"`}},
		{name: "panic", body: named, answer: func() Answer { panic("boom") }, writer: httptest.NewRecorder(),
			want: []string{`"panic: boom"`, `cause="panic"`}},
		{name: "unsupported resource", body: strings.ReplaceAll(named, "pods", "services"), writer: httptest.NewRecorder(),
			want: []string{"no handler for resource", "services", `cause="resource"`}},
		{name: "lost connection", body: named, answer: func() Answer { return Answer{} }, writer: lost{httptest.NewRecorder()},
			want: []string{`"the client is gone"`, `cause="response"`}},
		{name: "panic after the response", body: named, answer: func() Answer { return Answer{After: func() { panic("boom") }} },
			writer: httptest.NewRecorder(), want: []string{`"panic: boom"`, `cause="panic"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log, text := logged()
			request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tc.body))
			request.Header.Set("Content-Type", "application/json")
			r := &recorder{}
			h := New(Config{Environment: process.OS{}, Handlers: []Handler{pods(tc.answer)}, Recorder: r}).Handler(log)
			h.ServeHTTP(tc.writer, request)
			require.Len(t, r.causes, 1)
			require.Equal(t, 1, strings.Count(text.String(), "\nE")+strings.Count(text.String()[:1], "E"), "one error line in %s", text)
			for _, want := range append(tc.want, `namespace="ns"`, `name="web-1"`, `uid="u1"`) {
				require.Contains(t, text.String(), want)
			}
		})
	}
}

// Any client that reaches the port can cause problems at a high rate. The counters stay exact.
func TestProblems_LogIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logged()
		r := &recorder{}
		h := New(Config{Environment: process.OS{}, Handlers: []Handler{pods(func() Answer { panic("boom") })}, Recorder: r}).Handler(log)
		lines := func() int {
			defer text.Reset()
			return strings.Count(text.String(), "\n")
		}
		ask := func(kind, body string) {
			request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			request.Header.Set("Content-Type", kind)
			h.ServeHTTP(httptest.NewRecorder(), request)
		}
		for range 1000 {
			ask(strings.Repeat("x\n", 30_000), "")
		}
		require.Less(t, text.Len(), 500)
		require.Contains(t, text.String(), `content type is \"x\\nx`)
		require.Equal(t, 1, lines())
		ask("application/json", "nonsense")
		require.Equal(t, 1, lines(), "another cause")
		time.Sleep(time.Second)
		ask("text/plain", "")
		require.Contains(t, text.String(), `notLogged=999`)
		require.Equal(t, 1, lines())
		ask("application/json", review)
		require.Equal(t, 1, strings.Count(text.String(), "The stack of the panic"))
		text.Reset()
		ask("application/json", review)
		require.Empty(t, text.String())
		require.Len(t, r.causes, 1004)
	})
}

// lost is a response writer whose client is gone, so that flushes fail.
type lost struct{ *httptest.ResponseRecorder }

func (lost) FlushError() error { return errors.New("the client is gone") }

func TestServer_LostResponseIsErrorWithoutAfter(t *testing.T) {
	r, told := &recorder{}, false
	answer := Answer{Patch: []client.PatchOperation{client.PatchAdd("/a", "b")}, After: func() { told = true }}
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	New(Config{Environment: process.OS{}, Handlers: []Handler{pods(func() Answer { return answer })}, Recorder: r}).Handler(klog.Background()).ServeHTTP(lost{httptest.NewRecorder()}, request)
	require.Equal(t, []Cause{CauseResponse}, r.causes, "once")
	require.Equal(t, []string{"error Pod"}, r.requests)
	require.False(t, told, "the log must not say that a pod got something")
}

// The client has its response and reuses the connection, so a panic in After must not close it.
func TestServer_PanicInAfterKeepsConnection(t *testing.T) {
	r := &recorder{}
	client, url, _ := served(t, Config{Recorder: r, Handlers: []Handler{pods(func() Answer { return Answer{After: func() { panic("boom") }} })}})
	reused := 0
	for range 3 {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if info.Reused {
				reused++
			}
		}})
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, struct{ io.Reader }{strings.NewReader(review)}) // the request cannot be retried
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, errors.Join(err, response.Body.Close()))
		require.Equal(t, http.StatusOK, response.StatusCode)
		time.Sleep(50 * time.Millisecond) // time for the client to notice a closed connection
	}
	require.Equal(t, 2, reused)
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Equal(r.causes, []Cause{CausePanic, CausePanic, CausePanic})
	}, time.Minute, time.Millisecond)
}

// With a length, a client that has read the response does not wait for the end of the handler.
func TestServer_SetsContentLength(t *testing.T) {
	client, url, _ := served(t, Config{Handlers: []Handler{pods(func() Answer { return Answer{} })}})
	for _, tc := range []struct{ name, kind string }{
		{name: http.MethodPost, kind: "application/json"},
		{name: http.MethodHead, kind: "application/json"},
		{name: http.MethodGet, kind: "text/plain"},
		{name: http.MethodPut, kind: "text/plain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), tc.name, url, strings.NewReader(review))
			require.NoError(t, err)
			request.Header.Set("Content-Type", tc.kind)
			response, err := client.Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, errors.Join(err, response.Body.Close()))
			require.Equal(t, http.StatusOK, response.StatusCode)
			require.Empty(t, response.TransferEncoding)
			if tc.name != http.MethodHead {
				require.EqualValues(t, len(body), response.ContentLength)
			}
		})
	}
}
