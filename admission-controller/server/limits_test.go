package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/process"
)

// pipes is an in-memory listener for tests in virtual time.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

type from struct {
	net.Conn
	source string
	port   int // unique to the connection
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.source), Port: f.port} }

// virtually runs a server in virtual time. dial opens a TLS connection to it, with the handshake on
// first use.
func virtually(t *testing.T, config Config, use func(t *testing.T, dial func(source string) net.Conn)) {
	stoppable(t, config, func(t *testing.T, dial func(string) net.Conn, _ context.CancelFunc) { use(t, dial) })
}

// stoppable is virtually with a function that shuts the server down.
func stoppable(t *testing.T, config Config, use func(t *testing.T, dial func(source string) net.Conn, stop context.CancelFunc)) {
	synctest.Test(t, func(t *testing.T) {
		cert, cas := selfSigned(t)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cas)
		config.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
		p := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
		s := New(config)
		s.listener = p
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		var open []net.Conn
		defer func() {
			for _, connection := range open {
				require.NoError(t, connection.Close())
			}
			stop()
			require.NoError(t, <-ended)
		}()
		use(t, func(source string) net.Conn {
			near, far := net.Pipe()
			open = append(open, near)
			p.connections <- from{far, source, len(open)}
			return tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
		}, stop)
	})
}

func within(t *testing.T, use func(t *testing.T, connection net.Conn)) {
	config := Config{Recorder: &recorder{}, Handlers: []Handler{pods(func() Answer { return Answer{} })}}
	virtually(t, config, func(t *testing.T, dial func(string) net.Conn) { use(t, dial("192.0.2.1")) })
}

const head = "POST / HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"

// ended returns the time until the peer closes an idle connection.
func ended(t *testing.T, connection net.Conn) time.Duration {
	start := time.Now()
	_, err := io.Copy(io.Discard, connection)
	require.NoError(t, err)
	return time.Since(start)
}

func TestServer_EndsConnectionsOfSlowClients(t *testing.T) {
	for _, tc := range []struct {
		name, sent string
		within     time.Duration
	}{
		{name: "handshake", within: 10 * time.Second},
		{name: "first byte of a header", sent: "P", within: 10 * time.Second},
		{name: "header without end", sent: head, within: 10 * time.Second},
		{name: "body", sent: head + "Content-Length: 1000\r\n\r\n{", within: bodyTimeout + time.Second},
		{name: "body that is not read", sent: "GET " + ProbePath + " HTTP/1.1\r\nHost: webhook\r\nContent-Length: 1000\r\n\r\n{", within: bodyTimeout + time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			within(t, func(t *testing.T, connection net.Conn) {
				if tc.sent == "" {
					connection = connection.(*tls.Conn).NetConn()
				} else {
					_, err := io.WriteString(connection, tc.sent)
					require.NoError(t, err)
				}
				require.LessOrEqual(t, ended(t, connection), tc.within)
			})
		})
	}
}

func TestServer_IdleTimeoutExceedsThatOfAPIServer(t *testing.T) {
	within(t, func(t *testing.T, connection net.Conn) {
		_, err := fmt.Fprintf(connection, "%sContent-Length: %d\r\n\r\n%s", head, len(review), review)
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		require.NoError(t, err)
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Contains(t, string(answer), `"allowed":true`)
		idle := ended(t, connection)
		require.Greater(t, idle, 2*time.Minute, "the API server closes after 90 s; if we were first, it could write into a closed connection")
		require.Equal(t, idleTimeout, idle)
	})
}

// API servers open connections ahead of time and use some of them much later.
func TestServer_KeepsUnusedConnections(t *testing.T) {
	within(t, func(t *testing.T, connection net.Conn) {
		require.NoError(t, connection.(*tls.Conn).HandshakeContext(t.Context()))
		time.Sleep(91 * time.Second)
		large := padded(maxSmallBody + 1000)
		require.Contains(t, exchanged(t, connection, "/", large), `"allowed":true`, "and the body has the time that any has")
	})
}

// An API server may reuse a recently used connection while the replica shuts down.
func TestServer_ShutdownWaitsForConnectionsAtRest(t *testing.T) {
	for name, c := range map[string]struct {
		used, again time.Duration // relative to the shutdown, 0 for never
		want        time.Duration // from the start of the shutdown to the close of the connection
	}{
		"used a moment ago":   {used: time.Second, want: shutdownIdle - time.Second},
		"used again":          {used: time.Second, again: 7 * time.Second, want: 7 * time.Second},
		"at rest":             {used: 20 * time.Second, want: 3 * time.Second},
		"used while draining": {used: 20 * time.Second, again: 2 * time.Second, want: 2 * time.Second},
		"not used":            {want: shutdownIdle},
		"not used before":     {again: 9 * time.Second, want: 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			draining := Config{Recorder: &recorder{}, Handlers: []Handler{pods(func() Answer { return Answer{} })}, Drain: 3 * time.Second}
			stoppable(t, draining, func(t *testing.T, dial func(string) net.Conn, stop context.CancelFunc) {
				connection := dial("192.0.2.1")
				require.NoError(t, connection.(*tls.Conn).HandshakeContext(t.Context()))
				if c.used > 0 {
					require.Contains(t, exchanged(t, connection, "/", review), `"allowed":true`)
					time.Sleep(c.used)
				}
				stop()
				start := time.Now()
				if c.again > 0 {
					time.Sleep(c.again)
					require.Contains(t, exchanged(t, connection, "/", review), `"allowed":true`)
				}
				ended(t, connection)
				require.InDelta(t, c.want.Seconds(), time.Since(start).Seconds(), 1)
			})
		})
	}
}

func TestServer_ShutdownIgnoresProbeConnections(t *testing.T) {
	draining := Config{Recorder: &recorder{}, Handlers: []Handler{pods(func() Answer { return Answer{} })}, Drain: 3 * time.Second}
	stoppable(t, draining, func(t *testing.T, dial func(string) net.Conn, stop context.CancelFunc) {
		connection := dial("192.0.2.1")
		_, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: webhook\r\n\r\n", ProbePath)
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		stop()
		require.InDelta(t, 3, ended(t, connection).Seconds(), 0.5)
	})
}

// An announced length is not allocated: the body is read up to MaxBody and then refused.
func TestServer_AllocatesBodyAsItArrives(t *testing.T) {
	within(t, func(t *testing.T, connection net.Conn) {
		_, err := fmt.Fprintf(connection, "%sContent-Length: %d\r\n\r\n", head, int64(1)<<40)
		require.NoError(t, err)
		go func() { _, _ = io.Copy(connection, strings.NewReader(strings.Repeat(" ", MaxBody+1))) }()
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
	})
}

func exchanged(t *testing.T, connection net.Conn, target, body string) string {
	_, err := fmt.Fprintf(connection, "%sContent-Length: %d\r\n\r\n%s", strings.Replace(head, "POST /", "POST "+target, 1), len(body), body)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(answer)
}

// Clients that never finish their bodies must not block others for longer than the timeout in the
// manifest.
func TestServer_StalledBodiesReleaseMemory(t *testing.T) {
	for name, sent := range map[string]int{"announced only": maxSmallBody + 1, "nearly whole": MaxBody - 1} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			var seen atomic.Int32
			virtually(t, Config{Recorder: r, Handlers: []Handler{pods(func() Answer { seen.Add(1); return Answer{} })}}, func(t *testing.T, dial func(string) net.Conn) {
				for range maxLargeBytes / MaxBody {
					stalled := dial("192.0.2.66")
					go func() { _, _ = io.Copy(io.Discard, stalled) }()
					_, err := fmt.Fprintf(stalled, "%sContent-Length: %d\r\n\r\n%s", head, MaxBody, padded(MaxBody)[:sent])
					require.NoError(t, err)
				}
				synctest.Wait()
				require.Contains(t, exchanged(t, dial("192.0.2.1"), "/?timeout=5s", padded(maxSmallBody+1000)), `"uid":"u1","allowed":true`)
				require.EqualValues(t, 1, seen.Load())
				synctest.Wait()
				require.NotContains(t, r.causes, CauseBusy)
			})
		})
	}
}

func TestServer_RejectsSlowLargeBody(t *testing.T) {
	r := &recorder{}
	virtually(t, Config{Recorder: r, Handlers: []Handler{pods(func() Answer { return Answer{} })}}, func(t *testing.T, dial func(string) net.Conn) {
		connection := dial("192.0.2.66")
		_, err := fmt.Fprintf(connection, "%sContent-Length: %d\r\n\r\n%s", head, MaxBody, padded(MaxBody)[:MaxBody/2])
		require.NoError(t, err)
		start := time.Now()
		go func() {
			for range 20 {
				time.Sleep(time.Second)
				_, _ = io.WriteString(connection, strings.Repeat("x", 1000))
			}
		}()
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, response.StatusCode)
		require.LessOrEqual(t, time.Since(start), 3*time.Second)
		require.Equal(t, []Cause{CauseBody}, r.causes)
		time.Sleep(time.Minute)
	})
}

func TestServer_BodyTimeoutDoesNotCancelReview(t *testing.T) {
	var cut atomic.Bool
	h := pods(nil)
	h.Answer = func(ctx context.Context, _ *admissionv1.AdmissionRequest) Answer {
		select {
		case <-time.After(bodyTimeout + 5*time.Second):
		case <-ctx.Done():
			cut.Store(true)
		}
		return Answer{}
	}
	virtually(t, Config{Recorder: &recorder{}, Handlers: []Handler{h}}, func(t *testing.T, dial func(string) net.Conn) {
		connection := dial("192.0.2.1")
		require.Contains(t, exchanged(t, connection, "/?timeout=30s", padded(MaxBody)), `"uid":"u1","allowed":true`)
		require.Contains(t, exchanged(t, connection, "/?timeout=30s", review), `"uid":"u1","allowed":true`, "the connection is kept")
		require.False(t, cut.Load())
	})
}

// Overloading the webhook must not bypass the validation of VPAs. The failure policy may ignore
// failed calls, so the webhook refuses explicitly.
func TestServer_RefusesGuardedResourcesWhenBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		leave := make(chan struct{})
		h := pods(func() Answer { <-leave; return Answer{} })
		h.Guards = true
		server := New(Config{Environment: process.OS{}, Handlers: []Handler{h}, Recorder: r}).Handler(klog.Background())
		for range maxConcurrentReviews {
			go postReview(server, "/", review)
		}
		synctest.Wait()
		for _, body := range []string{review, padded(maxSmallBody + 1)} {
			answer := postReview(server, "/?timeout=5s", body)
			require.Contains(t, answer, `"uid":"u1","allowed":false`)
			require.Contains(t, answer, `"reason":"TooManyRequests"`)
			require.Contains(t, answer, `"retryAfterSeconds":1`)
		}
		require.Equal(t, []Cause{CauseBusy, CauseBusy}, r.causes)
		close(leave)
		synctest.Wait()
		require.Contains(t, postReview(server, "/?timeout=5s", review), `"uid":"u1","allowed":true`)
	})
}

func padded(size int) string {
	const member = `"x":""`
	return strings.Replace(review, `"object":{`, `"object":{"x":"`+strings.Repeat("x", size-len(review)-len(member))+`"`, 1)
}

func postReview(h http.Handler, target, body string) string {
	request := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	return w.Body.String()
}

// Many large reviews must not exhaust memory, and reviews of the usual size are answered meanwhile.
func TestServer_LargeReviewsWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		var seen atomic.Int32
		h := New(Config{Environment: process.OS{}, Handlers: []Handler{pods(func() Answer { seen.Add(1); return Answer{} })}, Recorder: r}).Handler(klog.Background())
		ended := make(chan string, maxLargeBytes/MaxBody)
		var open []*io.PipeWriter
		const fits = maxLargeBytes / MaxBody
		for range fits {
			body, writer := io.Pipe()
			request := httptest.NewRequest(http.MethodPost, "/?timeout=10s", body)
			request.Header.Set("Content-Type", "application/json")
			request.ContentLength = MaxBody
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, request)
				ended <- w.Body.String()
			}()
			large := padded(MaxBody)
			_, err := io.WriteString(writer, large[:MaxBody-1])
			require.NoError(t, err)
			open = append(open, writer)
		}
		synctest.Wait()
		require.Contains(t, postReview(h, "/?timeout=10s", review), `"allowed":true`)
		require.EqualValues(t, 1, seen.Load(), "one of usual size does not wait")
		start := time.Now()
		answer := postReview(h, "/?timeout=10s", padded(maxSmallBody+1000))
		require.Equal(t, 4500*time.Millisecond, time.Since(start), "half of the time that the API server gives")
		require.Contains(t, answer, `"uid":"u1","allowed":true`)
		require.Contains(t, answer, "this one was not checked")
		require.Equal(t, []Cause{CauseBusy}, r.causes)
		require.Equal(t, "error Pod", r.requests[1])
		require.EqualValues(t, 1, seen.Load())
		_, err := io.WriteString(open[0], "}")
		require.NoError(t, errors.Join(err, open[0].Close()))
		require.Contains(t, <-ended, `"uid":"u1"`)
		postReview(h, "/?timeout=10s", padded(maxSmallBody+1000))
		require.EqualValues(t, 3, seen.Load(), "what was taken is given back")
		for _, writer := range open[1:] {
			require.NoError(t, writer.CloseWithError(io.ErrUnexpectedEOF))
			<-ended
		}
		require.Contains(t, postReview(h, "/?timeout=10s", padded(MaxBody)), `"uid":"u1"`)
		require.EqualValues(t, 4, seen.Load())
	})
}

func TestServer_AllowsUnreviewedAfterLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		leave := make(chan struct{})
		var seen atomic.Int32
		h := New(Config{Environment: process.OS{}, Recorder: r, Handlers: []Handler{pods(func() Answer { seen.Add(1); <-leave; return Answer{} })}}).Handler(klog.Background())
		for i := range maxConcurrentReviews {
			go postReview(h, "/", inNamespace(review, fmt.Sprint("ns", i%namespaceShare)))
		}
		synctest.Wait()
		require.EqualValues(t, maxConcurrentReviews, seen.Load())
		start := time.Now()
		require.Contains(t, postReview(h, "/?timeout=2s", review), `"uid":"u1","allowed":true`)
		require.Equal(t, 900*time.Millisecond, time.Since(start))
		require.Equal(t, []Cause{CauseBusy}, r.causes)
		close(leave)
		synctest.Wait()
		require.Contains(t, postReview(h, "/?timeout=2s", review), `"uid":"u1","allowed":true`)
		require.EqualValues(t, maxConcurrentReviews+1, seen.Load())
	})
}

// A handler that waits must end before the API server times out.
func TestServer_HandlersHaveTimeoutOfAPIServer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		target string
		want   time.Duration
	}{
		{name: "seconds", target: "/?timeout=10s", want: 9 * time.Second},
		{name: "milliseconds", target: "/?timeout=500ms", want: 450 * time.Millisecond},
		{name: "no timeout", target: "/", want: 27 * time.Second},
		{name: "timeout above the maximum", target: "/?timeout=1h", want: 27 * time.Second},
		{name: "negative timeout", target: "/?timeout=-1s", want: 27 * time.Second},
		{name: "invalid timeout", target: "/?timeout=x", want: 27 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := pods(nil)
				h.Answer = func(ctx context.Context, _ *admissionv1.AdmissionRequest) Answer {
					start := time.Now()
					<-ctx.Done()
					require.Equal(t, tc.want, time.Since(start))
					return Answer{}
				}
				s := New(Config{Environment: process.OS{}, Handlers: []Handler{h}, Recorder: &recorder{}})
				postReview(s.Handler(klog.Background()), tc.target, review)
			})
		})
	}
}

func TestServer_ReadsBodyOfUnknownLength(t *testing.T) {
	r := &recorder{}
	var seen atomic.Int32
	h := New(Config{Environment: process.OS{}, Handlers: []Handler{pods(func() Answer { seen.Add(1); return Answer{} })}, Recorder: r}).Handler(klog.Background())
	for _, size := range []int{len(review) + 6, maxSmallBody - 1, maxSmallBody, maxSmallBody + 1, MaxBody} {
		for _, length := range []int64{-1, int64(size)} {
			request := httptest.NewRequest(http.MethodPost, "/", bytes.NewBufferString(padded(size)))
			request.ContentLength = length
			request.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request)
			require.Contains(t, w.Body.String(), `"uid":"u1","allowed":true`, size)
		}
	}
	require.EqualValues(t, 10, seen.Load())
	require.Empty(t, r.causes)
}

type timed struct {
	recorder
	took map[string]time.Duration
}

func (r *timed) Step(step string, took time.Duration) { r.took[step] = took }

type late struct {
	io.Reader
	after time.Duration
}

func (l *late) Read(p []byte) (int, error) {
	time.Sleep(l.after)
	l.after = 0
	return l.Reader.Read(p)
}

func TestServer_RecordsDurationOfEachStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &timed{took: map[string]time.Duration{}}
		h := New(Config{Environment: process.OS{}, Recorder: r, Handlers: []Handler{pods(func() Answer { time.Sleep(time.Second); return Answer{} })}}).Handler(klog.Background())
		request := httptest.NewRequest(http.MethodPost, "/", &late{strings.NewReader(review), 2 * time.Second})
		request.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(httptest.NewRecorder(), request)
		require.Equal(t, map[string]time.Duration{StepRead: 2 * time.Second, StepAdmit: time.Second, StepBuild: 0, StepWrite: 0, StepTotal: 3 * time.Second}, r.took)
	})
}
