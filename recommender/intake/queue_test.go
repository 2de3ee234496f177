package intake

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/usage"
)

func aPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func TestQueueNeverBlocksAndCountsWhatItDrops(t *testing.T) {
	var q OOMs
	for range queueLimit + 7 {
		q.Add(usage.OOM{Memory: amount.Amount(1)})
	}
	ooms, dropped := q.Drain()
	require.Len(t, ooms, queueLimit)
	require.Equal(t, 7, dropped)
	ooms, dropped = q.Drain()
	require.Empty(t, ooms)
	require.Zero(t, dropped)
}

func TestChangesKeepTheLatestStateOfAPod(t *testing.T) {
	ooms := &OOMs{}
	c := NewChanges(ooms)
	older, newer := aPod("p1"), aPod("p1")
	older.ResourceVersion, newer.ResourceVersion = "1", "2"
	c.OnAdd(older, true)
	c.OnUpdate(older, newer)
	c.OnUpdate(newer, newer) // a resync
	c.OnAdd(aPod("p0"), false)
	c.OnDelete(aPod("p2"))
	changes := c.Drain()
	require.Len(t, changes, 3)
	require.Equal(t, "p0", changes[0].Name.Name)
	require.Same(t, newer, changes[1].Pod)
	require.Nil(t, changes[2].Pod)
	require.Empty(t, c.Drain())
}

func TestKillsWake(t *testing.T) {
	var q OOMs
	q.Add()
	require.Empty(t, q.Wake())
	q.Add(usage.OOM{Memory: 1}) // nobody listened yet
	q.Add(usage.OOM{Memory: 2})
	require.Len(t, q.Wake(), 1, "one signal for all that wait")
	<-q.Wake()
	q.Drain()
	require.Empty(t, q.Wake())
	q.Add(usage.OOM{Memory: 3})
	require.Len(t, q.Wake(), 1)
}
