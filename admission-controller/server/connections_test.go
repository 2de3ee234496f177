package server

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// silent opens connections that never send a byte and counts how many the server closes.
func silent(dial func(string) net.Conn, number int, source func(i int) string) *atomic.Int32 {
	var closed atomic.Int32
	for i := range number {
		raw := dial(source(i)).(*tls.Conn).NetConn()
		go func() {
			_, _ = io.Copy(io.Discard, raw)
			closed.Add(1)
		}()
	}
	synctest.Wait()
	return &closed
}

func TestServer_AnswersWhileClientsOpenConnections(t *testing.T) {
	const maxOfAddress = maxConnections / 4
	for _, tc := range []struct {
		name         string
		addresses    int
		api          string
		number, kept int
	}{
		{name: "one address", addresses: 1, api: "198.51.100.1", number: maxOfAddress + 100, kept: maxOfAddress},
		{name: "ten addresses", addresses: 10, api: "198.51.100.1", number: maxConnections + 100, kept: maxConnections - 3},
		{name: "each its own address", addresses: maxConnections + 100, api: "198.51.100.1", number: maxConnections + 100, kept: maxConnections - 3},
		{name: "the address of the API server", addresses: 1, api: "192.0.2.0", number: maxOfAddress + 100, kept: maxOfAddress - 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &recorder{}
			config := Config{Recorder: r, Handlers: []Handler{pods(func() Answer { return Answer{} })}}
			virtually(t, config, func(t *testing.T, dial func(string) net.Conn) {
				kept := dial(tc.api)
				require.Contains(t, exchanged(t, kept, "/", review), `"allowed":true`)
				closed := silent(dial, tc.number, func(i int) string {
					return fmt.Sprintf("192.0.%d.%d", 2+i%tc.addresses/250, i%tc.addresses%250)
				})
				require.Contains(t, exchanged(t, dial(tc.api), "/", review), `"allowed":true`, "a new connection")
				require.Contains(t, exchanged(t, kept, "/", review), `"allowed":true`, "the connection from before is kept")
				probe := dial("198.51.100.2")
				_, err := io.WriteString(probe, "GET "+ProbePath+" HTTP/1.1\r\nHost: webhook\r\nConnection: close\r\n\r\n")
				require.NoError(t, err)
				response, err := http.ReadResponse(bufio.NewReader(probe), nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, response.StatusCode)
				synctest.Wait()
				require.EqualValues(t, tc.number-tc.kept, closed.Load())
				require.Len(t, r.causes, tc.number-tc.kept)
			})
		})
	}
}

// A client that only probes has a shorter idle time than the API server, but longer than the
// interval of the program's own probes.
func TestServer_ClosesProbeConnectionsSooner(t *testing.T) {
	within(t, func(t *testing.T, connection net.Conn) {
		reader := bufio.NewReader(connection)
		for range 3 {
			_, err := io.WriteString(connection, "GET "+ProbePath+" HTTP/1.1\r\nHost: webhook\r\n\r\n")
			require.NoError(t, err)
			response, err := http.ReadResponse(reader, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			time.Sleep(70 * time.Second)
		}
		start := time.Now()
		_, err := reader.ReadByte()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, probeIdleTimeout-70*time.Second, time.Since(start))
	})
}

// A client that announces a body must not cause a large allocation before it sends the body.
func TestLarger_GrowsBufferWithBody(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   int
		length int64
		want   int
	}{
		{name: "short announced length", size: 0, length: 100, want: 100},
		{name: "announced length of zero", size: 0, length: 0, want: initialBody},
		{name: "long announced length", size: 0, length: 60_000, want: initialBody},
		{name: "unknown length", size: 0, length: -1, want: initialBody},
		{name: "announced length above the limit", size: 0, length: 1 << 40, want: initialBody},
		{name: "grows to the announced length", size: initialBody, length: 5000, want: 5000},
		{name: "doubles without an announced length", size: initialBody, length: -1, want: 2 * initialBody},
		{name: "grows to the largest body", size: 4 << 20, length: MaxBody, want: MaxBody},
		{name: "stays at the largest body", size: MaxBody, length: 1 << 40, want: MaxBody},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, larger(tc.size, tc.length))
		})
	}
}
