package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// runs is the status of a container that runs since some seconds after 1970.
func runs(name string, since int64) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(since, 0)}}}
}

// Pods that share their statuses differ in when they started, and nobody who asks for a pod
// pays for that.
func TestTheStartOfAContainerIsKnown(t *testing.T) {
	waits := corev1.ContainerStatus{Name: "b", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	trimmed, whole := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers), cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	var trimmer Trimmer
	for name, statuses := range map[string][]corev1.ContainerStatus{
		"old": {runs("a", 1000), runs("b", 1000)}, "new": {runs("a", 9000), runs("b", 9000)},
		"restarted": {runs("a", 1000), runs("b", 5000)}, "waits": {runs("a", 1000), waits},
		"pending": nil, "unsaid": {{Name: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{ContainerStatuses: statuses}}
		require.NoError(t, whole.Add(pod))
		small, err := trimmer.Trim(pod.DeepCopy())
		require.NoError(t, err)
		require.NoError(t, trimmed.Add(small))
	}
	for _, pods := range []corelisters.PodLister{podLister{trimmed}, corelisters.NewPodLister(whole)} {
		for _, want := range []struct {
			pod, container string
			start          int64 // 0: not known
		}{
			{"old", "a", 1000}, {"old", "b", 1000}, {"new", "a", 9000}, {"restarted", "a", 1000}, {"restarted", "b", 5000},
			{"waits", "a", 1000}, {"pending", "a", 0}, {"unsaid", "a", 0}, {"gone", "a", 0},
		} {
			start := StartOf(pods, "ns", want.pod, want.container)
			if want.start == 0 {
				require.True(t, start.IsZero(), want)
				continue
			}
			require.Equal(t, want.start, start.Unix(), want)
		}
	}
	made, err := podLister{trimmed}.Pods("ns").Get("new")
	require.NoError(t, err)
	require.True(t, made.Status.ContainerStatuses[0].State.Running.StartedAt.IsZero(), "what pods share says no time")
}

func TestContainersThatStartTogetherHaveOneStart(t *testing.T) {
	for apart, rare := range map[int64]bool{0: false, 30: false, 31: true} {
		var p Pod
		p.begin([]corev1.ContainerStatus{runs("a", 1000), runs("b", 1000+apart)})
		require.Equal(t, rare, p.rare != nil, apart)
		if !rare {
			require.Equal(t, time.Unix(1000+apart, 0), secondsTime(p.began))
		}
	}
}
