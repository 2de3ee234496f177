package serving

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/process"
)

// pipes is a listener in memory, so that deadlines pass in virtual time.
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

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

type remote struct {
	net.Conn
	address string
}

func (r remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(r.address), Port: 1} }

// virtually runs the metrics port with one page in virtual time.
func virtually(t *testing.T, page []byte, use func(t *testing.T, dial func(address string) net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		s := New(process.OS{}, "", false, NewRegistry(), func() error { return nil })
		s.Handle("/page", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
		listener := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
		s.listener = listener
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		var open []net.Conn
		use(t, func(address string) net.Conn {
			near, far := net.Pipe()
			open = append(open, near)
			listener.connections <- remote{far, address}
			return near
		})
		for _, connection := range open {
			require.NoError(t, connection.Close())
		}
		stop()
		require.NoError(t, <-ended)
	})
}

func fetch(t *testing.T, connection net.Conn, path string) (int, string) {
	t.Helper()
	_, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

const request = "GET /health-check HTTP/1.1\r\nHost: a\r\n"

func TestPort_EndsConnectionsOfSlowClients(t *testing.T) {
	for _, tc := range []struct {
		name, first, then string
		within            time.Duration
	}{
		{name: "no request", within: 10 * time.Second},
		{name: "first byte", then: "G", within: headerTime},
		{name: "header without end", then: request, within: headerTime},
		{name: "first byte of the second header", first: request + "\r\n", then: "G", within: headerTime},
		{name: "second header without end", first: request + "\r\n", then: request, within: headerTime},
		{name: "second header with the first", first: request + "\r\n" + request, within: headerTime},
		{name: "idle", first: request + "\r\n", within: 2 * time.Minute},
		{name: "body", then: request + "Content-Length: 1000\r\n\r\nx", within: time.Second},
		{name: "body in chunks", then: request + "Transfer-Encoding: chunked\r\n\r\n5\r\nx", within: time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtually(t, nil, func(t *testing.T, dial func(string) net.Conn) {
				connection := dial("192.0.2.1")
				if tc.first != "" {
					_, err := io.WriteString(connection, tc.first)
					require.NoError(t, err)
					response, err := http.ReadResponse(bufio.NewReader(connection), nil)
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, response.StatusCode)
				}
				_, err := io.WriteString(connection, tc.then)
				require.NoError(t, err)
				start := time.Now()
				_, err = io.Copy(io.Discard, connection)
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(start), tc.within)
			})
		})
	}
}

// A header that arrives byte by byte has the same deadline as one that stops.
func TestPort_EndsTricklingHeaders(t *testing.T) {
	virtually(t, nil, func(t *testing.T, dial func(string) net.Conn) {
		connection := dial("192.0.2.1")
		go func() { _, _ = io.Copy(io.Discard, connection) }() // until the port closes it
		start := time.Now()
		for {
			if _, err := io.WriteString(connection, "G"); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, time.Since(start), headerTime+time.Second)
	})
}

func TestPort_RefusesLargeHeadersAndBodies(t *testing.T) {
	for _, tc := range []struct {
		name, fields string
		code         int
	}{
		{name: "small header", fields: "X: " + strings.Repeat("x", 7<<10) + "\r\n", code: http.StatusOK},
		{name: "large header", fields: "X: " + strings.Repeat("x", 8<<10) + "\r\n", code: http.StatusRequestHeaderFieldsTooLarge},
		{name: "many fields", fields: strings.Repeat("X: x\r\n", 90), code: http.StatusOK},
		{name: "too many fields", fields: strings.Repeat("X: x\r\n", 110), code: http.StatusBadRequest},
		{name: "lines of a body", fields: "Content-Length: 1000\r\n\r\n" + strings.Repeat("\n", 998), code: http.StatusRequestEntityTooLarge},
		{name: "body", fields: "Content-Length: 1\r\n", code: http.StatusRequestEntityTooLarge},
		{name: "HTTP/2 instead", fields: "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n", code: http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtually(t, nil, func(t *testing.T, dial func(string) net.Conn) {
				connection := dial("192.0.2.1")
				go func() { _, _ = io.WriteString(connection, request+tc.fields+"\r\n") }()
				response, err := http.ReadResponse(bufio.NewReader(connection), nil)
				require.NoError(t, err)
				require.Equal(t, tc.code, response.StatusCode)
				require.Equal(t, 1, response.ProtoMajor)
			})
		})
	}
}

// The kubelet and Prometheus are served while clients with one or many addresses read no responses.
func TestPort_ServesProbesAndScrapesDuringFlood(t *testing.T) {
	for _, tc := range []struct {
		name      string
		addresses int
		sent      string
	}{
		{name: "silent, one address", addresses: 1},
		{name: "silent, many addresses", addresses: 200},
		{name: "headers without end", addresses: 200, sent: request},
		{name: "slow readers, one address", addresses: 1, sent: "GET /page HTTP/1.1\r\nHost: a\r\n\r\n"},
		{name: "slow readers, many addresses", addresses: 4, sent: "GET /page HTTP/1.1\r\nHost: a\r\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page := bytes.Repeat([]byte("x"), 1<<20)
			virtually(t, page, func(t *testing.T, dial func(string) net.Conn) {
				for i := range 200 {
					connection := dial(fmt.Sprintf("192.0.2.%d", i%tc.addresses))
					_, _ = io.WriteString(connection, tc.sent) // fails if the port closed it in favor of another
				}
				synctest.Wait()
				code, body := fetch(t, dial("198.51.100.1"), "/health-check")
				require.Equal(t, http.StatusOK, code)
				require.Equal(t, "OK", body)
				start := time.Now()
				code, body = fetch(t, dial("198.51.100.2"), "/page")
				require.Equal(t, http.StatusOK, code)
				require.Len(t, body, len(page))
				require.Less(t, time.Since(start), 9*time.Second)
				code, _ = fetch(t, dial("192.0.2.0"), "/health-check")
				require.Equal(t, http.StatusOK, code, "also from the address of the flood")
			})
		})
	}
}

func FuzzPort(f *testing.F) {
	for _, seed := range []string{"", request, request + "\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00", request + "Content-Length: 9999999999\r\n\r\n",
		request + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", request + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", strings.Repeat("a:\r\n", 4000)} {
		f.Add([]byte(seed))
	}
	s := New(process.OS{}, "127.0.0.1:0", false, NewRegistry(), func() error { return nil })
	require.NoError(f, s.Listen())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		require.NoError(f, <-ended)
	})
	const growth = 192 << 20 // the fuzzing engine has a buffer of 100 MiB, connections need less than the rest
	allocated := func() uint64 {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		return memory.HeapAlloc
	}
	before := sync.OnceValue(func() uint64 { runtime.GC(); return allocated() })
	f.Fuzz(func(t *testing.T, sent []byte) {
		limit := before() + growth
		connection, err := net.Dial("tcp", s.Address().String())
		require.NoError(t, err)
		_, _ = connection.Write(sent) // the port may reject the rest
		require.NoError(t, connection.Close())
		code, _ := get(t, s, "/health-check")
		require.Equal(t, http.StatusOK, code)
		if allocated() > limit {
			runtime.GC()
		}
		require.Less(t, allocated(), limit)
	})
}

// The memory of connections with unfinished headers fits the budget that determines their maximum
// number.
func TestPort_UnfinishedHeadersFitBudget(t *testing.T) {
	var header strings.Builder
	header.WriteString(request)
	for i := range maxFields - 5 {
		fmt.Fprintf(&header, "%x:\r\n", i)
	}
	header.WriteString(strings.Repeat("x", maxHeader-100-header.Len()))
	virtually(t, nil, func(t *testing.T, dial func(string) net.Conn) {
		allocated := func() int64 {
			for range 3 { // the first collections fill and empty the pools
				runtime.GC()
			}
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			return int64(memory.HeapAlloc)
		}
		before := allocated()
		for i := range statusBounds.Connections {
			_, err := io.WriteString(dial(fmt.Sprintf("192.0.2.%d", i)), header.String())
			require.NoError(t, err)
		}
		synctest.Wait()
		each := (allocated() - before) / int64(statusBounds.Connections)
		t.Logf("%d bytes for each connection", each)
		require.Less(t, each, int64(maxHeader*headerCost)/3, "live memory: the garbage collector and TLS need the rest")
	})
}
