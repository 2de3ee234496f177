package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/admission-controller/certs"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
)

// beater returns a Beater that writes a Lease and does not probe the Service.
func beater(client *fake.Clientset, own net.Listener) *Beater {
	return &Beater{
		Lease:   &lease.Heartbeat{Client: client.CoordinationV1(), Namespace: "kube-system", Name: "hb", Holder: "me", Interval: 10 * time.Second},
		Server:  &Server{listener: own},
		Service: ServiceProbe{Foreign: true, Host: "webhook", Environment: process.OS{}},
		Health:  NewHealth(time.Now()),
		Keeper:  &certs.Keeper{Holder: &certs.Holder{}},
	}
}

type port struct {
	*httptest.Server

	probes atomic.Int32
	stuck  atomic.Bool
}

func newPort(t *testing.T) *port {
	p := &port{}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if p.probes.Add(1); p.stuck.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// wire connects to a server in virtual time unless it is cut.
type wire struct {
	process.OS

	dial func() net.Conn

	mu        sync.Mutex
	isCut     bool
	connected net.Conn // nil before the first connection
}

func (w *wire) Dial(context.Context, string, string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return nil, errors.New("stuck")
	}
	w.connected = w.dial()
	return w.connected, nil
}

func (w *wire) cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut = cut; cut && w.connected != nil {
		_ = w.connected.Close()
	}
}

type bystander struct{}

func (bystander) Namespaces() []string       { return nil }
func (bystander) Certificate(_, _ time.Time) {}

func TestBeater_FollowsProbe(t *testing.T) {
	virtually(t, Config{Recorder: &recorder{}}, func(t *testing.T, dial func(string) net.Conn) {
		client := fake.NewClientset()
		read := func() *coordinationv1.Lease {
			l, err := client.CoordinationV1().Leases("kube-system").Get(context.Background(), "hb", metav1.GetOptions{})
			if err != nil {
				return nil
			}
			return l
		}
		webhook := &wire{isCut: true, dial: func() net.Conn { return dial("192.0.2.1").(*tls.Conn).NetConn() }}
		b := beater(client, &pipes{})
		b.Service.Environment = webhook
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(time.Minute)
		require.Nil(t, read(), "no heartbeat before the webhook answers")
		require.False(t, b.Health.ready.Load())

		webhook.cut(false)
		time.Sleep(25 * time.Second)
		alive, err := (&lease.Monitor{Heartbeat: b.Lease, Timeout: time.Minute}).Alive(ctx, time.Now())
		require.NoError(t, err)
		require.True(t, alive)
		require.True(t, b.Health.ready.Load())

		webhook.cut(true)
		time.Sleep(2 * time.Minute)
		renewed := read().Spec.RenewTime.Time
		require.Greater(t, time.Since(renewed), time.Minute, "no heartbeat while it does not answer")

		webhook.cut(false)
		time.Sleep(11 * time.Second)
		stop()
		require.NoError(t, <-ended)
		alive, err = (&lease.Monitor{Heartbeat: b.Lease, Timeout: time.Minute}).Alive(context.Background(), time.Now())
		require.NoError(t, err)
		require.False(t, alive, "expired at the end")
	})
}

// The webhook answers on its own port but not through its Service. It is alive, but the updater
// must not evict.
func TestBeater_NoHeartbeatWithoutService(t *testing.T) {
	client := fake.NewClientset()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	b := beater(client, newPort(t).Listener)
	b.Service = ServiceProbe{URL: "https://" + closed.Addr().String(), Host: "vpa-webhook.kube-system.svc", Environment: process.OS{}}
	require.ErrorContains(t, b.once(t.Context()), "probe own webhook at "+closed.Addr().String()+": dial tcp ")
	require.True(t, b.Health.ready.Load())
	require.Empty(t, client.Actions())

	b.Service.Foreign = true
	require.NoError(t, b.once(t.Context()), "where the way is not known the own port must do")
	require.NotEmpty(t, client.Actions())
}

// A registration that cannot be written, for example because of an admission policy, stops the
// heartbeat. The program keeps serving: an earlier registration may exist, and a new process could
// not write one either.
func TestBeater_FailedRegistrationStopsHeartbeatOnly(t *testing.T) {
	client, refused := fake.NewClientset(), errors.New("refused")
	kube := fake.NewClientset()
	kube.PrependReactor("*", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refused != nil, nil, refused
	})
	own := newPort(t)
	b := beater(client, own.Listener)
	b.Keeper.Source = &certs.Store{Secrets: kube.CoreV1(), Namespace: "kube-system", Name: "s", Hosts: []string{"localhost"}, Schedule: certs.DefaultSchedule()}
	b.Keeper.Registrar = &certs.Registrar{Client: kube.AdmissionregistrationV1(), Served: bystander{}}
	b.Keeper.Recorder = bystander{}
	require.ErrorIs(t, b.Keeper.RunOnce(t.Context(), time.Now()), refused)
	for range 5 {
		require.ErrorIs(t, b.once(t.Context()), refused)
	}
	require.EqualValues(t, 3, own.probes.Load())
	require.NoError(t, b.Health.Check())
	require.Empty(t, client.Actions())
	refused = nil
	require.NoError(t, b.Keeper.RunOnce(t.Context(), time.Now()))
	require.NoError(t, b.once(t.Context()))
	require.NotEmpty(t, client.Actions())
}

func TestBeater_ReusesProbeForTwoHeartbeats(t *testing.T) {
	own := newPort(t)
	b := beater(fake.NewClientset(), own.Listener)
	for beat, want := range []int{1, 1, 2, 2, 3} {
		require.NoError(t, b.once(t.Context()))
		require.EqualValues(t, want, own.probes.Load(), beat)
	}
	own.stuck.Store(true)
	require.NoError(t, b.once(t.Context()))
	for range 3 {
		require.ErrorContains(t, b.once(t.Context()), "503")
	}
	require.EqualValues(t, 6, own.probes.Load(), "each time, until it answers")
	own.stuck.Store(false)
	require.NoError(t, b.once(t.Context()))
	require.EqualValues(t, 7, own.probes.Load())
}

// Each probe costs as much as a request of the API server.
func TestBeater_ProbesOwnPortRarelyBehindService(t *testing.T) {
	own, service := newPort(t), newPort(t)
	b := beater(fake.NewClientset(), own.Listener)
	b.Service = ServiceProbe{URL: service.URL, Host: "webhook", Environment: process.OS{}}
	beat := func(beats int) {
		for range beats {
			require.NoError(t, b.once(t.Context()))
		}
	}
	beat(6)
	require.EqualValues(t, 1, own.probes.Load())
	b.lastSelfProbe = b.lastSelfProbe.Add(-selfProbeInterval)
	beat(2)
	require.EqualValues(t, 2, own.probes.Load())
	b.lastSelfProbe = b.lastSelfProbe.Add(-selfProbeInterval)
	own.stuck.Store(true)
	for range 2 {
		require.ErrorContains(t, b.once(t.Context()), "503")
	}
	require.EqualValues(t, 4, own.probes.Load(), "until it answers")
}

func TestHealth_Check(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(time.Now())
		require.ErrorIs(t, h.Check(), errStarting)
		time.Sleep(StartGrace)
		require.NoError(t, h.Check(), "a slow start must not be killed by the liveness probe")
		h.Alive()
		time.Sleep(maxProbeAge)
		require.NoError(t, h.Check())
		time.Sleep(time.Second)
		require.Error(t, h.Check())
		h.Alive()
		require.NoError(t, h.Check())
	})
}
