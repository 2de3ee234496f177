package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/kube/lease"
)

func TestD11TheHeartbeatFollowsTheProbe(t *testing.T) {
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
		b := beater{
			lease: &lease.Beat{Client: client.CoordinationV1(), Namespace: "kube-system", Name: "hb", Holder: "me", Interval: 10 * time.Second},
			probe: func(context.Context) error {
				if text := answers.Load().(string); text != "" {
					return errors.New(text)
				}
				return nil
			},
			alive: func() { probes.Add(1) },
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(time.Minute)
		require.Nil(t, read(), "no heartbeat before the webhook answers")
		require.Zero(t, probes.Load())

		answers.Store("")
		time.Sleep(25 * time.Second)
		alive, err := b.lease.Alive(ctx, time.Minute, time.Now())
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
		alive, err = b.lease.Alive(context.Background(), time.Minute, time.Now())
		require.NoError(t, err)
		require.False(t, alive, "expired at the end")
	})
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(time.Now())
		require.ErrorIs(t, h.Check(), errStarting)
		time.Sleep(startGrace)
		require.NoError(t, h.Check(), "a slow start must not be killed by the liveness probe")
		h.alive()
		time.Sleep(silence)
		require.NoError(t, h.Check())
		time.Sleep(time.Second)
		require.Error(t, h.Check())
		h.alive()
		require.NoError(t, h.Check())
	})
}
