package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// runs returns the status of a container that has been running since the given Unix time.
func runs(name string, since int64) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(since, 0)}}}
}

// Pods that share a status can have different start times. Getting a pod does not compute them.
func TestStartOf_ReturnsContainerStart(t *testing.T) {
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
	for _, lister := range []struct {
		name string
		pods corelisters.PodLister
	}{
		{name: "trimmed pods", pods: podLister{trimmed}},
		{name: "whole pods", pods: corelisters.NewPodLister(whole)},
	} {
		t.Run(lister.name, func(t *testing.T) {
			for _, tc := range []struct {
				name, pod, container string
				start                int64 // 0 for unknown
			}{
				{name: "first container of an old pod", pod: "old", container: "a", start: 1000},
				{name: "second container of an old pod", pod: "old", container: "b", start: 1000},
				{name: "container of a new pod", pod: "new", container: "a", start: 9000},
				{name: "container beside a restarted one", pod: "restarted", container: "a", start: 1000},
				{name: "restarted container", pod: "restarted", container: "b", start: 5000},
				{name: "container beside a waiting one", pod: "waits", container: "a", start: 1000},
				{name: "pending pod", pod: "pending", container: "a", start: 0},
				{name: "running without a start time", pod: "unsaid", container: "a", start: 0},
				{name: "missing pod", pod: "gone", container: "a", start: 0},
			} {
				t.Run(tc.name, func(t *testing.T) {
					start := StartOf(lister.pods, "ns", tc.pod, tc.container)
					if tc.start == 0 {
						require.True(t, start.IsZero())
						return
					}
					require.Equal(t, tc.start, start.Unix())
				})
			}
		})
	}
	made, err := podLister{trimmed}.Pods("ns").Get("new")
	require.NoError(t, err)
	require.True(t, made.Status.ContainerStatuses[0].State.Running.StartedAt.IsZero(), "what pods share says no time")
}

func TestPodStarts_SharedWhenClose(t *testing.T) {
	for apart, rare := range map[int64]bool{0: false, 30: false, 31: true} {
		var p Pod
		p.recordStarts([]corev1.ContainerStatus{runs("a", 1000), runs("b", 1000+apart)})
		require.Equal(t, rare, p.rare != nil, apart)
		if !rare {
			require.Equal(t, time.Unix(1000+apart, 0), secondsTime(p.containerStart))
		}
	}
}

// EachPod reuses one object for all pods, so no field of the previous pod may remain.
func TestEachPod_MatchesSinglePods(t *testing.T) {
	cached := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	var trimmer Trimmer
	seconds, always := int64(60), corev1.ContainerRestartPolicyAlways
	for i := range 40 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("bare-%d", i)}}
		if i%2 == 0 {
			pod = &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: fmt.Sprintf("full-%d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "7", Generation: 3, CreationTimestamp: metav1.Unix(1e9, 0),
					DeletionTimestamp: new(metav1.Unix(2e9, 0)), Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"loadline.dev/shared": "cpu"},
					OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}},
				},
				Spec: corev1.PodSpec{
					NodeName: "n1", PriorityClassName: "high", Containers: []corev1.Container{{Name: "app"}}, InitContainers: []corev1.Container{{Name: "proxy", RestartPolicy: &always}},
					Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
					Overhead:  corev1.ResourceList{"cpu": resource.MustParse("10m")}, ActiveDeadlineSeconds: &seconds, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
				},
				Status: corev1.PodStatus{
					Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 3, StartTime: new(metav1.Unix(1e9, 0)),
					ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true}}, InitContainerStatuses: []corev1.ContainerStatus{{Name: "proxy", Ready: true}},
					Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodResizePending, Status: corev1.ConditionTrue}},
				},
			}
		}
		trimmed, err := trimmer.Trim(pod)
		require.NoError(t, err)
		require.NoError(t, cached.Add(trimmed))
	}
	met := 0
	require.NoError(t, EachPod(podLister{cached}, func(pod *corev1.Pod) {
		met++
		alone, _, err := cached.GetByKey("ns/" + pod.Name)
		require.NoError(t, err)
		require.Equal(t, alone.(*Pod).Object(), pod)
	}))
	require.Equal(t, 40, met)
}
