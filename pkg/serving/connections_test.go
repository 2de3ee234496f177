package serving

import (
	"bytes"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2/textlogger"
)

type titled struct {
	net.Conn
	address, name string
}

func (c titled) RemoteAddr() net.Addr          { return &net.TCPAddr{IP: net.ParseIP(c.address)} }
func (titled) SetReadDeadline(time.Time) error { return nil }
func (titled) Read(p []byte) (int, error)      { return 1, nil }
func (titled) Close() error                    { return nil }

// crowd opens connections by name and records the ones closed in favor of others.
type crowd struct {
	table *connections
	open  map[string]*Connection
	gone  []string
}

func newCrowd(most int) *crowd {
	cr := &crowd{open: map[string]*Connection{}}
	cr.table = newConnections(most, Bounds{}, nil, func(c *Connection, _ string) { cr.gone = append(cr.gone, c.raw.(titled).name) })
	return cr
}

func (cr *crowd) dial(address, name string) *Connection {
	raw := titled{address: address, name: name}
	c := &Connection{Conn: raw, raw: raw}
	cr.open[name] = c
	cr.table.add(c)
	return c
}

// serve dials, completes a request and leaves the connection idle.
func (cr *crowd) serve(address, name string, trust bool) *Connection {
	c := cr.dial(address, name)
	_, _ = c.Read(make([]byte, 1))
	c.headerReceived(false)
	if trust {
		c.Trust()
	}
	cr.table.updateState(c, http.StateIdle)
	return c
}

func TestConnections_ClosesLeastNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cr := newCrowd(4)
		cr.table.maxPerSource = 3
		cr.serve("192.0.2.1", "reviews", true)
		cr.serve("192.0.2.1", "probes", false)
		cr.dial("192.0.2.1", "stalled")
		require.Empty(t, cr.gone)
		time.Sleep(stallTime)
		cr.dial("192.0.2.1", "works").Working()
		require.Equal(t, []string{"stalled"}, cr.gone, "it had the time to send its request")
		cr.dial("192.0.2.1", "works, too").Working()
		require.Equal(t, []string{"stalled", "probes"}, cr.gone)
		cr.serve("192.0.2.2", "other", true)
		require.Len(t, cr.gone, 2)
		cr.dial("192.0.2.1", "new")
		require.Equal(t, []string{"stalled", "probes", "works, too"}, cr.gone, "the latest response, if too many are open in all")
		cr.open["new"].Working()
		cr.dial("192.0.2.3", "third address")
		require.Equal(t, []string{"stalled", "probes", "works, too", "new"}, cr.gone)
		cr.open["third address"].Working()
		cr.open["third address"].Trust()
		cr.table.updateState(cr.open["works"], http.StateClosed)
		cr.dial("192.0.2.1", "fourth")
		cr.open["fourth"].Working()
		time.Sleep(stallTime)
		cr.dial("192.0.2.3", "fifth")
		require.Equal(t, "fourth", cr.gone[4], "a slow response goes before a trusted connection")
		for _, name := range []string{"reviews", "other", "third address", "fifth"} {
			cr.table.updateState(cr.open[name], http.StateClosed)
		}
		require.Empty(t, cr.table.open)
		require.Empty(t, cr.table.sources)
	})
}

func TestConnections_KeepsAPIServer(t *testing.T) {
	const most = 100
	for _, tc := range []struct {
		name     string
		verified bool
		flood    func(cr *crowd, i int)
	}{
		{name: "silent, one address", flood: func(cr *crowd, i int) { cr.dial("192.0.2.9", "a") }},
		{name: "silent, the same address", flood: func(cr *crowd, i int) { cr.dial("192.0.2.1", "a") }},
		{name: "silent, each its own address", flood: func(cr *crowd, i int) { cr.dial(net.IPv4(10, 0, byte(i>>8), byte(i)).String(), "a") }},
		{name: "probes, the same address", flood: func(cr *crowd, i int) { cr.serve("192.0.2.1", "a", false) }},
		{name: "working, the same address", flood: func(cr *crowd, i int) { cr.dial("192.0.2.1", "a").Working() }},
		{name: "working, each its own address", flood: func(cr *crowd, i int) { cr.dial(net.IPv4(10, 0, byte(i>>8), byte(i)).String(), "a").Working() }},
		{name: "reviews, the same address", flood: func(cr *crowd, i int) { cr.serve("192.0.2.1", "a", true) }},
		{name: "reviews, another address", flood: func(cr *crowd, i int) { cr.serve("192.0.2.9", "a", true) }},
		{name: "reviews, then a header without end, the same address", flood: func(cr *crowd, i int) {
			_, _ = cr.serve("192.0.2.1", "a", true).Read(make([]byte, 1))
		}},
		{name: "certificate", verified: true, flood: func(cr *crowd, i int) { cr.serve("192.0.2.1", "a", false) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cr := newCrowd(most)
				for range 3 {
					cr.serve("192.0.2.1", "api", !tc.verified).verified = tc.verified
				}
				for i := range 5 * most {
					tc.flood(cr, i)
					time.Sleep(10 * time.Millisecond)
				}
				require.False(t, slices.Contains(cr.gone, "api"))
				require.LessOrEqual(t, len(cr.table.open), most)
				cr.dial("192.0.2.2", "kubelet")
				require.False(t, slices.Contains(cr.gone, "kubelet"), "a new connection is not refused")
			})
		})
	}
}

// The connections of both ports of a program together fit into half of its memory limit.
func TestBounds_FitMemoryLimit(t *testing.T) {
	webhook := Bounds{Connections: 1000, MemoryPart: 7}
	for _, tc := range []struct {
		name            string
		limit           int64
		webhook, status int
	}{
		{name: "none", limit: math.MaxInt64, webhook: 1000, status: 64},
		{name: "manifest", limit: 450 << 20, webhook: 1000, status: 64},
		{name: "small", limit: 100 << 20, webhook: 280, status: 40},
		{name: "tiny", limit: 1 << 20, webhook: minConnections, status: minConnections},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.webhook, webhook.connections(tc.limit))
			require.Equal(t, tc.status, statusBounds.connections(tc.limit))
			if tc.limit > 10<<20 && tc.limit < math.MaxInt64 {
				require.LessOrEqual(t, int64(tc.webhook+tc.status)*maxHeader*20, tc.limit/2)
			}
		})
	}
}

func TestThrottle_LogsOneMessagePerSecond(t *testing.T) {
	var text bytes.Buffer
	out := errorLog{textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text), textlogger.Verbosity(9))), &Throttle{}}
	for range 1000 {
		n, err := out.Write([]byte("http: TLS handshake error"))
		require.NoError(t, err)
		require.Equal(t, 25, n)
	}
	require.Equal(t, 1, strings.Count(text.String(), "\n"))
}
