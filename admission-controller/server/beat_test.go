package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
)

func TestTheHeartbeatFollowsTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		read := func() *coordinationv1.Lease {
			l, err := client.CoordinationV1().Leases("kube-system").Get(context.Background(), "hb", metav1.GetOptions{})
			if err != nil {
				return nil
			}
			return l
		}
		var answers atomic.Value // the error of the probe, as text; empty: none
		var probes atomic.Int32
		answers.Store("not yet")
		b := Beater{
			Environment: process.OS{},
			Lease:       &lease.Beat{Client: client.CoordinationV1(), Namespace: "kube-system", Name: "hb", Holder: "me", Interval: 10 * time.Second},
			ProbeSelf: func(context.Context) error {
				if text := answers.Load().(string); text != "" {
					return errors.New(text)
				}
				return nil
			},
			ServiceTarget: func(context.Context) (ProbeTarget, bool) { return ProbeTarget{}, false },
			Alive:         func() { probes.Add(1) },
			Registered:    func() error { return nil },
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(time.Minute)
		require.Nil(t, read(), "no heartbeat before the webhook answers")
		require.Zero(t, probes.Load())

		answers.Store("")
		time.Sleep(25 * time.Second)
		alive, err := (&lease.Pulse{Beat: b.Lease, Timeout: time.Minute}).Alive(ctx, time.Now())
		require.NoError(t, err)
		require.True(t, alive)
		require.Positive(t, probes.Load())

		answers.Store("stuck")
		time.Sleep(2 * time.Minute)
		renewed := read().Spec.RenewTime.Time
		require.Greater(t, time.Since(renewed), time.Minute, "no heartbeat while it does not answer")

		answers.Store("")
		time.Sleep(11 * time.Second)
		stop()
		require.NoError(t, <-ended)
		alive, err = (&lease.Pulse{Beat: b.Lease, Timeout: time.Minute}).Alive(context.Background(), time.Now())
		require.NoError(t, err)
		require.False(t, alive, "expired at the end")
	})
}

// The webhook answers over its own port, but not on the way of the API server:
// it is alive, and the updater must not evict.
func TestNoHeartbeatWithoutTheService(t *testing.T) {
	client := fake.NewClientset()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	alive := 0
	b := Beater{
		Environment: process.OS{},
		Lease:       &lease.Beat{Client: client.CoordinationV1(), Namespace: "kube-system", Name: "hb", Holder: "me", Interval: 10 * time.Second},
		ProbeSelf:   func(context.Context) error { return nil },
		ServiceTarget: func(context.Context) (ProbeTarget, bool) {
			return ProbeTarget{Address: closed.Addr().String(), Host: "vpa-webhook.kube-system.svc"}, true
		},
		Alive:      func() { alive++ },
		Registered: func() error { return nil },
	}
	require.ErrorContains(t, b.once(t.Context()), "does not answer a probe of its own at "+closed.Addr().String())
	require.Equal(t, 1, alive)
	require.Empty(t, client.Actions())

	b.ServiceTarget = func(context.Context) (ProbeTarget, bool) { return ProbeTarget{}, false }
	require.NoError(t, b.once(t.Context()), "where the way is not known the own port must do")
	require.NotEmpty(t, client.Actions())
}

// A registration that cannot be written, as where a policy of the cluster guards such objects, stops the heartbeat. The program answers on:
// what it registered before may still be there, and no new process could write more.
func TestAWebhookThatCannotRegisterLives(t *testing.T) {
	client, alive, refused := fake.NewClientset(), 0, errors.New("refused")
	b := Beater{
		Environment:   process.OS{},
		Lease:         &lease.Beat{Client: client.CoordinationV1(), Namespace: "kube-system", Name: "hb", Holder: "me", Interval: 10 * time.Second},
		ProbeSelf:     func(context.Context) error { return nil },
		ServiceTarget: func(context.Context) (ProbeTarget, bool) { return ProbeTarget{}, false },
		Alive:         func() { alive++ },
		Registered:    func() error { return refused },
	}
	for range 4 {
		require.ErrorIs(t, b.once(t.Context()), refused)
	}
	require.Equal(t, 2, alive)
	require.Empty(t, client.Actions())
	refused = nil
	require.NoError(t, b.once(t.Context()))
	require.NotEmpty(t, client.Actions())
}

func TestAnAnswerIsGoodForTwoHeartbeats(t *testing.T) {
	client, probes, stuck := fake.NewClientset(), 0, error(nil)
	b := Beater{
		Environment:   process.OS{},
		Lease:         &lease.Beat{Client: client.CoordinationV1(), Namespace: "kube-system", Name: "hb", Holder: "me", Interval: 10 * time.Second},
		ProbeSelf:     func(context.Context) error { probes++; return stuck },
		ServiceTarget: func(context.Context) (ProbeTarget, bool) { return ProbeTarget{}, false },
		Alive:         func() {},
		Registered:    func() error { return nil },
	}
	for beat, want := range []int{1, 1, 2, 2, 3} {
		require.NoError(t, b.once(t.Context()))
		require.Equal(t, want, probes, beat)
	}
	stuck = errors.New("stuck")
	require.NoError(t, b.once(t.Context()))
	for range 3 {
		require.ErrorIs(t, b.once(t.Context()), stuck)
	}
	require.Equal(t, 6, probes, "each time, until it answers")
	stuck = nil
	require.NoError(t, b.once(t.Context()))
	require.Equal(t, 7, probes)
}

// Each probe costs as much as a request to the API server.
func TestTheOwnPortIsProbedLessOftenWhereTheServiceIsProbed(t *testing.T) {
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer webhook.Close()
	client := fake.NewClientset()
	own := 0
	b := Beater{
		Environment: process.OS{},
		Lease:       &lease.Beat{Client: client.CoordinationV1(), Namespace: "kube-system", Name: "hb", Holder: "me", Interval: 10 * time.Second},
		ProbeSelf:   func(context.Context) error { own++; return nil },
		ServiceTarget: func(context.Context) (ProbeTarget, bool) {
			return ProbeTarget{Address: webhook.Listener.Addr().String(), Host: "webhook"}, true
		},
		Alive:      func() {},
		Registered: func() error { return nil },
	}
	beat := func(beats int) {
		for range beats {
			require.NoError(t, b.once(t.Context()))
		}
	}
	beat(6)
	require.Equal(t, 1, own)
	b.answered = b.answered.Add(-selfProbeEvery)
	beat(2)
	require.Equal(t, 2, own)
	b.answered = b.answered.Add(-selfProbeEvery)
	b.ProbeSelf = func(context.Context) error { own++; return errors.New("stuck") }
	for range 2 {
		require.ErrorContains(t, b.once(t.Context()), "stuck")
	}
	require.Equal(t, 4, own, "until it answers")
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(time.Now())
		require.ErrorIs(t, h.Check(), errStarting)
		time.Sleep(StartGrace)
		require.NoError(t, h.Check(), "a slow start must not be killed by the liveness probe")
		h.Alive()
		time.Sleep(silence)
		require.NoError(t, h.Check())
		time.Sleep(time.Second)
		require.Error(t, h.Check())
		h.Alive()
		require.NoError(t, h.Check())
	})
}
