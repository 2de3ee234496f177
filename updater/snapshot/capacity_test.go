package snapshot

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestFreeNodes_CountAllPods(t *testing.T) {
	pod := func(name, node, cpu string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node,
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", cpu)}}}}}
	}
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	pending := func(p *corev1.Pod) *corev1.Pod { p.Status.Phase = corev1.PodPending; return p }
	for _, p := range []*corev1.Pod{pod("1", "a", "300m"), pending(pod("2", "a", "200m")), pod("3", "gone", "1"), pending(pod("refused", "a", "2001m")), pending(pod("refused-too", "a", "1600m"))} {
		require.NoError(t, index.Add(p))
	}
	resizing := func(p *corev1.Pod, has string) *corev1.Pod {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Resources: &corev1.ResourceRequirements{Requests: list("cpu", has)}}}}
		return p
	}
	require.NoError(t, index.Add(resizing(pod("waits", "c", "700m"), "100m")))
	require.NoError(t, index.Add(resizing(pod("will never be granted", "b", "1001m"), "100m")))
	nodes, err := freeNodes([]*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.NodeSpec{Unschedulable: true}, Status: corev1.NodeStatus{Allocatable: list("cpu", "1")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "loadline.dev/overloaded", Effect: corev1.TaintEffectNoSchedule}}}, Status: corev1.NodeStatus{Allocatable: list("cpu", "1")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Allocatable: list("cpu", "2")}},
	}, corelisters.NewPodLister(index))
	require.NoError(t, err)
	cpu := func(m resources.Amount) resources.List { return resources.List{}.With(resources.CPU, m) }
	require.Equal(t, []disruption.Node{
		{Name: "a", Allocatable: cpu(2000), Free: cpu(1500), AcceptsPods: true},
		{Name: "b", Allocatable: cpu(1000), Free: cpu(900)},
		{Name: "c", Allocatable: cpu(1000), Free: cpu(300)},
	}, nodes)
}

func TestFreeNodes_DaemonAndStaticPodsAreFixed(t *testing.T) {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for i, owner := range []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent"}, {APIVersion: "v1", Kind: "Node", Name: "a"}, {APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"},
		{APIVersion: "example.com/v1", Kind: "DaemonSet", Name: "other"},
	} {
		owner.Controller = new(true)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: owner.Name + owner.Kind, OwnerReferences: []metav1.OwnerReference{owner}}, Spec: corev1.PodSpec{NodeName: "a"}}
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", fmt.Sprintf("%dm", 100<<i))}}}
		require.NoError(t, index.Add(pod))
	}
	nodes, err := freeNodes([]*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Allocatable: list("cpu", "2")}}}, corelisters.NewPodLister(index))
	require.NoError(t, err)
	require.Equal(t, resources.Amount(300), nodes[0].Fixed.Value(resources.CPU))
	require.Equal(t, resources.Amount(500), nodes[0].Free.Value(resources.CPU))
}

func TestCapacityReader_UnknownCapacityFits(t *testing.T) {
	none, err := CapacityReader{}.Room()
	require.NoError(t, err)
	require.Nil(t, none)
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	waiting := CapacityReader{Nodes: corelisters.NewNodeLister(store), NodeInformer: syncedWhen(func() bool { return false }),
		Quotas: corelisters.NewResourceQuotaLister(store), QuotaInformer: syncedWhen(func() bool { return false })}
	unknown, err := waiting.Room()
	require.NoError(t, err)
	require.Equal(t, disruption.RoomFits, unknown.CheckPlacement(disruption.Need{Node: "a", After: resources.NewList(1, 1)}, false))
}

type syncedWhen func() bool

func (f syncedWhen) HasSynced() bool { return f() }
