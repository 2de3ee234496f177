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

// silent opens connections that never send a byte, and returns how many of them the
// server has closed.
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

// Somebody who opens as many connections as he can keeps neither the API server nor
// the kubelet out.
func TestConnectionsAreBoundedAndNobodyIsLockedOut(t *testing.T) {
	for name, c := range map[string]struct {
		attackers, number, kept int
	}{"one source": {1, mostOfSource + 100, mostOfSource}, "many sources": {10, mostConnections + 100, mostConnections - 3}} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			config := Config{Recorder: r, Handlers: []Handler{pods(func() Answer { return Answer{} })}}
			virtually(t, config, func(t *testing.T, dial func(string) net.Conn) {
				kept := dial("192.0.2.1")
				require.Contains(t, exchanged(t, kept, "/", review), `"allowed":true`)
				closed := silent(dial, c.number, func(i int) string { return fmt.Sprintf("192.0.2.%d", 100+i%c.attackers) })
				require.Contains(t, exchanged(t, dial("192.0.2.1"), "/", review), `"allowed":true`, "a new connection")
				require.Contains(t, exchanged(t, kept, "/", review), `"allowed":true`, "the one that was there is kept")
				probe := dial("192.0.2.2")
				_, err := io.WriteString(probe, "GET "+ProbePath+" HTTP/1.1\r\nHost: webhook\r\nConnection: close\r\n\r\n")
				require.NoError(t, err)
				response, err := http.ReadResponse(bufio.NewReader(probe), nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, response.StatusCode)
				synctest.Wait()
				require.EqualValues(t, c.number-c.kept, closed.Load())
				require.Len(t, r.causes, c.number-c.kept)
			})
		})
	}
}

// The connection that goes is the one that is needed least.
func TestWhichConnectionMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone []string
		open := newConnections(4, 3, func(c *connection) { gone = append(gone, c.Conn.(titled).name) })
		opened := map[string]*connection{}
		dial := func(source, name string) {
			opened[name] = open.add(titled{from{nil, source, len(opened)}, name})
		}
		state := func(name string, state http.ConnState) { open.changed(opened[name].Conn, state) }
		dial("192.0.2.1", "reviews")
		opened["reviews"].reviews()
		state("reviews", http.StateIdle)
		dial("192.0.2.1", "probes")
		state("probes", http.StateIdle)
		dial("192.0.2.1", "stalled")
		require.Empty(t, gone)
		time.Sleep(chunkTime)
		dial("192.0.2.1", "works")
		require.Equal(t, []string{"stalled"}, gone, "it had the time to send its request")
		opened["works"].works()
		dial("192.0.2.1", "works, too")
		require.Equal(t, []string{"stalled", "probes"}, gone)
		opened["works, too"].works()
		dial("192.0.2.1", "new")
		require.Equal(t, []string{"stalled", "probes", "reviews"}, gone)
		opened["new"].works()
		dial("192.0.2.1", "fourth")
		require.Len(t, gone, 3, "those that are worked on are not closed for another of their source while there is room")
		dial("192.0.2.2", "other")
		require.Equal(t, "fourth", gone[3], "the source with the most makes room for the others")
		opened["other"].works()
		dial("192.0.2.3", "third source")
		require.Equal(t, "new", gone[4], "also if all of them are worked on")
		dial("192.0.2.1", "more")
		require.Equal(t, "more", gone[5], "but not for one of its own")
		for _, name := range []string{"works", "works, too", "other", "third source"} {
			state(name, http.StateClosed)
		}
		require.Empty(t, open.open)
		require.Empty(t, open.sources)
	})
}

// titled is a connection with a name.
type titled struct {
	from
	name string
}

func (titled) Close() error { return nil }

// Who only probes has less time than the API server, but more than there is between
// two probes of the program's own.
func TestAConnectionThatOnlyProbesIsClosedSooner(t *testing.T) {
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
		require.Equal(t, probeIdleTime-70*time.Second, time.Since(start))
	})
}

// A connection that announces a body has little before that comes.
func TestABodyBeginsSmall(t *testing.T) {
	for _, c := range []struct {
		size   int
		length int64
		want   int
	}{{0, 100, 100}, {0, 0, firstBody}, {0, 60_000, firstBody}, {0, -1, firstBody}, {0, 1 << 40, firstBody}, {firstBody, 5000, 5000}, {firstBody, -1, 2 * firstBody},
		{4 << 20, MaxBody, MaxBody}, {MaxBody, 1 << 40, MaxBody}} {
		require.Equal(t, c.want, larger(c.size, c.length), "%+v", c)
	}
}
