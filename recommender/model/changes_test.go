package model

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func aQueuedPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func TestOOMs_BoundsQueueAndCountsDrops(t *testing.T) {
	var q KillQueue
	for range queueLimit + 7 {
		q.Add(usage.OOM{Memory: resources.Amount(1)})
	}
	ooms, dropped := q.Drain()
	require.Len(t, ooms, queueLimit)
	require.Equal(t, 7, dropped)
	ooms, dropped = q.Drain()
	require.Empty(t, ooms)
	require.Zero(t, dropped)
}

func TestChanges_KeepsLatestPod(t *testing.T) {
	ooms := &KillQueue{}
	c := NewChanges(ooms)
	older, newer := aQueuedPod("p1"), aQueuedPod("p1")
	older.ResourceVersion, newer.ResourceVersion = "1", "2"
	c.OnAdd(older, true)
	c.OnUpdate(older, newer)
	c.OnUpdate(newer, newer) // resync
	c.OnAdd(aQueuedPod("p0"), false)
	c.OnDelete(aQueuedPod("p2"))
	changes := c.Drain()
	require.Len(t, changes, 3)
	require.Equal(t, "p0", changes[0].Name.Name)
	require.Same(t, newer, changes[1].Pod())
	require.Nil(t, changes[2].Pod())
	require.Empty(t, c.Drain())
}

func TestOOMs_SignalsOnceUntilDrained(t *testing.T) {
	var q KillQueue
	q.Add()
	require.Empty(t, q.Wake())
	q.Add(usage.OOM{Memory: 1}) // before anyone listens
	q.Add(usage.OOM{Memory: 2})
	require.Len(t, q.Wake(), 1, "one signal for all that wait")
	q.Drain()
	require.Empty(t, q.Wake())
	q.Add(usage.OOM{Memory: 3})
	require.Len(t, q.Wake(), 1)
}

func TestChanges_QueuesKillsWithNewPods(t *testing.T) {
	ooms := &KillQueue{}
	c := NewChanges(ooms)
	killed := func(name, uid string) *corev1.Pod {
		pod := aQueuedPod(name)
		pod.UID, pod.ResourceVersion = types.UID(uid), uid
		end := &corev1.ContainerStateTerminated{Reason: "OOMKilled", ContainerID: "containerd://" + uid, FinishedAt: metav1.Now()}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", State: corev1.ContainerState{Terminated: end}}}
		return pod
	}
	c.OnAdd(killed("p1", "1"), true)
	require.Len(t, ooms.Wake(), 1)
	early, _ := ooms.Drain()
	require.Empty(t, early, "nobody knows the pod yet")
	c.OnUpdate(killed("p1", "1"), killed("p1", "2")) // same name, other UID
	require.Len(t, c.Drain(), 1)
	got, _ := ooms.Drain()
	require.Len(t, got, 2)
	for _, kill := range got {
		require.False(t, kill.Discovered.IsZero())
		require.NotEmpty(t, kill.ID)
	}
	require.NotEqual(t, got[0].ID, got[1].ID)
}

func TestChanges_KeepsAllInitialKills(t *testing.T) {
	ooms := &KillQueue{}
	c := NewChanges(ooms)
	const pods = queueLimit + 10
	for i := range pods {
		pod := aQueuedPod(strconv.Itoa(i))
		end := &corev1.ContainerStateTerminated{Reason: "OOMKilled", ContainerID: "x", FinishedAt: metav1.Now()}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", LastTerminationState: corev1.ContainerState{Terminated: end}}}
		c.OnAdd(pod, true)
	}
	c.Drain()
	ooms.Add(usage.OOM{}) // later kills are bounded
	got, dropped := ooms.Drain()
	require.Len(t, got, pods)
	require.Equal(t, 1, dropped)
}
