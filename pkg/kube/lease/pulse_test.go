package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// heart is a Lease with a writer whose clock may be wrong.
type heart struct {
	t     *testing.T
	kube  *fake.Clientset
	begin time.Time
	wrong time.Duration
}

func newHeart(t *testing.T, wrong time.Duration) *heart {
	h := &heart{t, fake.NewClientset(), time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), wrong}
	require.NoError(t, h.kube.Tracker().Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "beat", UID: "u",
		CreationTimestamp: metav1.NewTime(h.begin.Add(-24 * time.Hour))}}))
	return h
}

func (h *heart) at(s int) time.Time { return h.begin.Add(time.Duration(s) * time.Second) }

func (h *heart) beat(s int) {
	lease, err := h.kube.CoordinationV1().Leases("ns").Get(h.t.Context(), "beat", metav1.GetOptions{})
	require.NoError(h.t, err)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: h.at(s).Add(h.wrong)}
	_, err = h.kube.CoordinationV1().Leases("ns").Update(h.t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}

func (h *heart) pulse() *Monitor {
	return &Monitor{Heartbeat: &Heartbeat{Client: h.kube.CoordinationV1(), Namespace: "ns", Name: "beat"}, Timeout: time.Minute}
}

func (h *heart) alive(p *Monitor, s int) bool {
	h.t.Helper()
	alive, err := p.Alive(h.t.Context(), h.at(s))
	require.NoError(h.t, err)
	return alive
}

func TestMonitor_UsesOnlyClockOfReader(t *testing.T) {
	for _, wrong := range []time.Duration{0, -time.Hour, time.Hour} {
		h := newHeart(t, wrong)
		p := h.pulse()
		h.beat(0)
		require.Equal(t, wrong >= 0, h.alive(p, 1), "the first look can only believe the Lease")
		h.beat(30)
		require.True(t, h.alive(p, 31), "it beats, whatever its clock says: %s", wrong)
		require.True(t, h.alive(p, 90))
		require.False(t, h.alive(p, 91), "no beat for a minute: %s", wrong)
		h.beat(100)
		require.True(t, h.alive(p, 101))
	}
}

func TestMonitor_RequiresRecentHeartbeatAfterPause(t *testing.T) {
	h := newHeart(t, 0)
	p := h.pulse()
	h.beat(0)
	require.True(t, h.alive(p, 1))
	h.beat(10)
	require.False(t, h.alive(p, 300), "the last beat was 290 seconds ago")
	h.beat(299)
	require.True(t, h.alive(p, 301))
}

func TestMonitor_DetectsExpiredLease(t *testing.T) {
	h := newHeart(t, 0)
	p := h.pulse()
	h.beat(0)
	require.True(t, h.alive(p, 1))
	writer := p.Heartbeat
	writer.Holder = "me"
	lease, err := h.kube.CoordinationV1().Leases("ns").Get(t.Context(), "beat", metav1.GetOptions{})
	require.NoError(t, err)
	lease.Spec.HolderIdentity = &writer.Holder
	_, err = h.kube.CoordinationV1().Leases("ns").Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, writer.Expire(t.Context()))
	require.False(t, h.alive(p, 2))
	require.NoError(t, h.kube.CoordinationV1().Leases("ns").Delete(t.Context(), "beat", metav1.DeleteOptions{}))
	_, err = p.Alive(t.Context(), h.at(3))
	require.ErrorContains(t, err, "read the heartbeat lease ns/beat")
}
