package client

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/testkit"
)

var few = testkit.Crowd{Pods: 6, Deployments: 2, Revisions: 2, Nodes: 3}

func trimmedPod(t *testing.T, trimmer *Trimmer, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	got, err := trimmer.Trim(pod)
	require.NoError(t, err)
	return got.(*Pod).Object()
}

func TestTrimPod_MatchesWithAndWithoutSharing(t *testing.T) {
	var trimmer Trimmer
	for i := range few.Pods {
		whole := few.Pod(i)
		want := trimmedPod(t, new(Trimmer), few.Pod(i))
		got := trimmedPod(t, &trimmer, whole)
		require.True(t, apiequality.Semantic.DeepEqual(want, got))
		require.True(t, apiequality.Semantic.DeepEqual(few.Pod(i), whole), "the original is untouched")
		kept, err := trimmer.Trim(whole)
		require.NoError(t, err)
		again, err := trimmer.Trim(kept)
		require.NoError(t, err)
		require.Same(t, kept, again, "an informer that fills its cache trims twice")
	}
}

func TestTrimPod_SharesOnlyEqualParts(t *testing.T) {
	var trimmer Trimmer
	base := trimmedPod(t, &trimmer, few.Pod(0))
	list := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
	}
	always := corev1.ContainerRestartPolicyAlways
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
	}{
		{name: "label", change: func(p *corev1.Pod) { p.Labels["app"] = "other" }},
		{name: "kind of owner", change: func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Thing" }},
		{name: "label moved", change: func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b,c=d"} }},
		{name: "annotation", change: func(p *corev1.Pod) { p.Annotations["vpaUpdates"] = "other" }},
		{name: "no annotations", change: func(p *corev1.Pod) { p.Annotations = nil }},
		{name: "owner", change: func(p *corev1.Pod) { p.OwnerReferences[0].Name = "other" }},
		{name: "no controller", change: func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }},
		{name: "container", change: func(p *corev1.Pod) { p.Spec.Containers[1].Name = "other" }},
		{name: "request", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("7") }},
		{name: "number format", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("1Ki") }},
		{name: "limit", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }},
		{name: "empty limit", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{} }},
		{name: "claim", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}} }},
		{name: "resize policy",
			change: func(p *corev1.Pod) { p.Spec.Containers[0].ResizePolicy[1].RestartPolicy = corev1.RestartContainer }},
		{name: "sidecar", change: func(p *corev1.Pod) { p.Spec.InitContainers[0].RestartPolicy = &always }},
		{name: "node", change: func(p *corev1.Pod) { p.Spec.NodeName = "other" }},
		{name: "phase", change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		{name: "not ready", change: func(p *corev1.Pod) { p.Status.Conditions[2].Status = corev1.ConditionFalse }},
		{name: "container unready", change: func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = false }},
		{name: "restart", change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }},
		{name: "sizes in force", change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources.Requests = list("7") }},
		{name: "no sizes in force", change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources = nil }},
		{name: "waits", change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "x"}}
		}},
		{name: "killed", change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ContainerID: "a", FinishedAt: metav1.Unix(5, 0)}
		}},
		{name: "killed later", change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ContainerID: "a", FinishedAt: metav1.Unix(6, 0)}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := few.Pod(0)
			tc.change(pod)
			alone := trimmedPod(t, new(Trimmer), pod)
			got := trimmedPod(t, &trimmer, pod)
			require.Equal(t, alone.Spec.Containers[0].Resources.Limits == nil, got.Spec.Containers[0].Resources.Limits == nil)
			require.True(t, apiequality.Semantic.DeepEqual(alone, got))
			require.False(t, apiequality.Semantic.DeepEqual(base, got) && shown(base) == shown(got))
		})
	}
}

// shown formats number formats and empty lists, which semantic equality ignores.
func shown(p *corev1.Pod) string {
	r := p.Spec.Containers[0].Resources
	return fmt.Sprintf("%v %v %v", r.Requests.Cpu(), r.Limits == nil, p.Annotations == nil)
}

func TestTrimPod_ReleasesUnusedParts(t *testing.T) {
	var trimmer Trimmer
	held := func() [6]int {
		trimmer.mu.Lock()
		defer trimmer.mu.Unlock()
		return [6]int{len(trimmer.policies.held), len(trimmer.labels.held), len(trimmer.ownerFields.held), len(trimmer.shapes.held), len(trimmer.statusFields.held), len(trimmer.lists.held)}
	}
	cached := func(i int) *Pod {
		got, err := trimmer.Trim(few.Pod(i))
		require.NoError(t, err)
		return got.(*Pod)
	}
	first, second, other := cached(0), cached(1), cached(5)
	require.Same(t, first.shape, second.shape, "pods of a revision have the same containers")
	require.Same(t, first.statusFields, second.statusFields)
	require.Equal(t, 2, held()[3], "of two Deployments")
	vpa, err := trimmer.Trim(few.VPA(1))
	require.NoError(t, err)
	full := held()
	runtime.KeepAlive(first)
	runtime.KeepAlive(other)
	require.Eventually(t, func() bool { runtime.GC(); return held()[3] == 1 }, time.Minute, time.Millisecond, "the other Deployment has no pod any more")
	require.Same(t, second.shape, cached(2).shape)
	require.Less(t, held()[5], full[5])
	runtime.KeepAlive(second)
	runtime.KeepAlive(vpa)
	require.Eventually(t, func() bool { runtime.GC(); return held() == [6]int{} }, time.Minute, time.Millisecond)
}

func TestTrimVPA_SharesEqualAmounts(t *testing.T) {
	var trimmer Trimmer
	trim := func(i int) *vpav1.VerticalPodAutoscaler {
		whole := few.VPA(i)
		got, err := trimmer.Trim(whole)
		require.NoError(t, err)
		require.True(t, apiequality.Semantic.DeepEqual(few.VPA(i), whole), "the original is untouched")
		return got.(*vpav1.VerticalPodAutoscaler)
	}
	one, two := trim(0), trim(1)
	require.True(t, apiequality.Semantic.DeepEqual(few.VPA(1).Status, two.Status))
	require.True(t, apiequality.Semantic.DeepEqual(few.VPA(1).Spec, two.Spec))
	lists := len(trimmer.lists.held)
	require.Equal(t, 1+2+3+3, lists, "the policy, floor and two upper bounds of one, two containers of the other")
	runtime.KeepAlive(one)
	runtime.KeepAlive(two)
}

// Maximum heap of a cached object, without its cache keys.
func TestTrimObjects_AreSmall(t *testing.T) {
	c := testkit.Crowd{Pods: 1_000, Deployments: 200, Revisions: 11, Nodes: 100}
	for _, tc := range []struct {
		name        string
		count, most int
		object      func(i int) any
	}{
		{name: "pod", count: c.Pods, most: 1700, object: func(i int) any { return c.Pod(i) }},
		{name: "replica set", count: c.Deployments * c.Revisions, most: 300, object: func(i int) any { return c.ReplicaSet(i) }},
		{name: "VPA", count: c.Deployments, most: 3200, object: func(i int) any { return c.VPA(i) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, trimmer, kept := testkit.LiveHeap(), new(Trimmer), make([]any, tc.count)
			for i := range kept {
				var err error
				kept[i], err = trimmer.Trim(decoded(t, tc.object(i)))
				require.NoError(t, err)
			}
			each := int(testkit.LiveHeap()-before) / tc.count
			require.LessOrEqual(t, each, tc.most, "bytes per object")
			t.Logf("%d bytes", each)
			runtime.KeepAlive(kept)
			runtime.KeepAlive(trimmer)
		})
	}
}

// decoded returns an object as a client decodes it, without memory shared with other objects.
func decoded(t *testing.T, object any) any {
	t.Helper()
	switch o := object.(type) {
	case *corev1.Pod:
		data, err := o.Marshal()
		require.NoError(t, err)
		read := &corev1.Pod{}
		require.NoError(t, read.Unmarshal(data))
		return read
	case interface {
		DeepCopy() *vpav1.VerticalPodAutoscaler
	}:
		return o.DeepCopy()
	}
	return object
}

func TestTrimmer_RevisionsShareTheirOwner(t *testing.T) {
	var trimmer Trimmer
	revision := func(namespace, owner, name string) *ReplicaSet {
		trimmed, err := trimmer.Trim(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner, Controller: new(true)}}}})
		require.NoError(t, err)
		set, ok := trimmed.(*ReplicaSet)
		require.True(t, ok)
		require.Equal(t, owner, set.GetOwnerReferences()[0].Name)
		return set
	}
	first := revision("a", "web", "web-1")
	require.Same(t, first.owner, revision("a", "web", "web-2").owner)
	require.NotSame(t, first.owner, revision("a", "db", "db-1").owner)
	other := revision("b", "db", "db-1")
	require.Equal(t, "b", other.GetNamespace())
	require.NotSame(t, other.owner, revision("a", "db", "db-2").owner)
}

func TestTrimmer_KeepsLabels(t *testing.T) {
	for _, labels := range []map[string]string{nil, {}, {"app": "web", "app.kubernetes.io/managed-by": "Helm", "team": "a"}} {
		trimmed, err := new(Trimmer).Trim(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}})
		require.NoError(t, err)
		pod, ok := PodOf(trimmed)
		require.True(t, ok)
		require.Equal(t, labels, pod.Labels)
	}
}
