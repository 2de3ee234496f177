package mutate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/testkit"
)

func quotaOf(hard, used string, change ...func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: testkit.List(hard), Used: testkit.List(used)}}
	for _, f := range change {
		f(q)
	}
	return q
}

func scoped(scopes ...corev1.ResourceQuotaScope) func(*corev1.ResourceQuota) {
	return func(q *corev1.ResourceQuota) { q.Spec.Scopes = scopes }
}

func TestRoomFor_TightestQuotaApplies(t *testing.T) {
	pod := testkit.Pod("p")
	got := RoomFor(pod, []*corev1.ResourceQuota{
		quotaOf("cpu=4 limits.cpu=8 pods=10", "cpu=1 limits.cpu=9"),
		quotaOf("requests.cpu=2500m requests.memory=1Gi", "requests.cpu=100m"),
	})
	require.Equal(t, Room{Requests: resources.NewList(2400, 1<<30), Limits: resources.List{}.With(resources.CPU, 0)}, got)
	require.Equal(t, Room{}, RoomFor(pod, nil))

	always := corev1.ContainerRestartPolicyAlways
	sidecar := testkit.Container("side", "cpu=300m", "")
	sidecar.RestartPolicy = &always
	pod.Spec.InitContainers = []corev1.Container{sidecar, testkit.Container("init", "cpu=2", "")}
	pod.Spec.Overhead = testkit.List("cpu=100m")
	got = RoomFor(pod, []*corev1.ResourceQuota{quotaOf("cpu=1", "")})
	require.Equal(t, resources.Amount(600), got.Requests.Value(resources.CPU))
}

func TestRoomFor_IgnoresQuotasOfOtherPods(t *testing.T) {
	class := func(operator corev1.ScopeSelectorOperator, names ...string) func(*corev1.ResourceQuota) {
		return func(q *corev1.ResourceQuota) {
			q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator, Values: names}}}
		}
	}
	pod := testkit.Pod("p")
	pod.Spec.PriorityClassName = "high"
	for _, tc := range []struct {
		name   string
		change func(*corev1.ResourceQuota)
		counts bool
	}{
		{name: "BestEffort", change: scoped(corev1.ResourceQuotaScopeBestEffort), counts: false},
		{name: "NotBestEffort", change: scoped(corev1.ResourceQuotaScopeNotBestEffort), counts: true},
		{name: "Terminating", change: scoped(corev1.ResourceQuotaScopeTerminating), counts: false},
		{name: "NotTerminating and NotBestEffort",
			change: scoped(corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeNotBestEffort), counts: true},
		{name: "any priority class", change: scoped(corev1.ResourceQuotaScopePriorityClass), counts: true},
		{name: "class of the pod in the list", change: class(corev1.ScopeSelectorOpIn, "low", "high"), counts: true},
		{name: "another priority class", change: class(corev1.ScopeSelectorOpIn, "low"), counts: false},
		{name: "class of the pod excluded", change: class(corev1.ScopeSelectorOpNotIn, "high"), counts: false},
		{name: "no priority class", change: class(corev1.ScopeSelectorOpDoesNotExist), counts: false},
		{name: "unknown scope", change: scoped("Future"), counts: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := RoomFor(pod, []*corev1.ResourceQuota{quotaOf("cpu=1", "", tc.change)})
			require.Equal(t, tc.counts, got != Room{})
		})
	}
}

func TestRoomCut_CutsInProportion(t *testing.T) {
	pod := policy.Pod{Containers: []policy.Container{{Name: "a"}, {Name: "b"}, {Name: "plain", Requests: resources.NewList(100, 0)}}}
	fitted := func(name string, request, limit resources.Amount) policy.ContainerTarget {
		var r resources.List
		return policy.ContainerTarget{Name: name, Requests: r.With(resources.CPU, request), Limits: r.With(resources.CPU, limit)}
	}
	least := []policy.ContainerTarget{fitted("a", 100, 200), fitted("b", 100, 100), {Name: "plain"}}
	wanted := []policy.ContainerTarget{fitted("a", 500, 1000), fitted("b", 300, 300), {Name: "plain"}}
	room := func(requests, limits resources.Amount) Room {
		var r resources.List
		return Room{r.With(resources.CPU, requests), r.With(resources.CPU, limits)}
	}
	got, changes := room(600, 5000).Cut(pod, least, wanted)
	require.Equal(t, []policy.ContainerTarget{fitted("a", 300, 600), fitted("b", 200, 200), {Name: "plain"}}, got)
	require.Equal(t, []Change{
		{Container: "a", Kind: resources.CPU, From: 500, To: 300},
		{Container: "b", Kind: resources.CPU, From: 300, To: 200},
	}, changes)

	got, _ = room(5000, 800).Cut(pod, least, wanted)
	require.Equal(t, []policy.ContainerTarget{fitted("a", 300, 600), fitted("b", 200, 200), {Name: "plain"}}, got, "limits count, too")

	got, changes = room(900, 1300).Cut(pod, least, wanted)
	require.Equal(t, wanted, got)
	require.Empty(t, changes)

	got, changes = room(250, 5000).Cut(pod, least, wanted)
	require.Equal(t, least, got)
	require.Equal(t, []Change{
		{Container: "a", Kind: resources.CPU, From: 100, To: 100},
		{Container: "b", Kind: resources.CPU, From: 100, To: 100},
	}, changes)

	smaller := []policy.ContainerTarget{fitted("a", 50, 100), fitted("b", 300, 300), {Name: "plain"}}
	got, _ = room(300, 5000).Cut(pod, least, smaller)
	require.Equal(t, fitted("a", 50, 100), got[0], "a container that shrinks does so whatever the quota is")
	require.Equal(t, fitted("b", 150, 150), got[1])
}

func TestRoomCut_FitsWheneverMinimumFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := func(label string, most int64) resources.Amount {
			return resources.Amount(rapid.Int64Range(0, most).Draw(t, label))
		}
		var pod policy.Pod
		var least, wanted []policy.ContainerTarget
		var sum resources.Amount
		for range rapid.IntRange(1, 4).Draw(t, "containers") {
			low, more := value("low", 1<<40), value("more", 1<<40)
			sum += low
			pod.Containers = append(pod.Containers, policy.Container{})
			least = append(least, policy.ContainerTarget{Requests: resources.NewList(0, low)})
			wanted = append(wanted, policy.ContainerTarget{Requests: resources.NewList(0, low+more)})
		}
		room := Room{Requests: resources.List{}.With(resources.Memory, sum+value("room", 1<<41))}
		got, _ := room.Cut(pod, least, wanted)
		var total resources.Amount
		for i := range got {
			request := got[i].Requests.Value(resources.Memory)
			require.GreaterOrEqual(t, request, least[i].Requests.Value(resources.Memory))
			require.LessOrEqual(t, request, wanted[i].Requests.Value(resources.Memory))
			total += request
		}
		require.LessOrEqual(t, total, room.Requests.Value(resources.Memory))
	})
}

func TestToward_Interpolates(t *testing.T) {
	const k = resources.Memory
	fitted := func(request, limit resources.Amount) policy.ContainerTarget {
		return policy.ContainerTarget{Name: "c", Requests: resources.List{}.With(k, request), Limits: resources.List{}.With(k, limit)}
	}
	for _, tc := range []struct {
		name          string
		least, wanted policy.ContainerTarget
	}{
		{name: "no least request", least: policy.ContainerTarget{Name: "c", Limits: resources.List{}.With(k, 100)},
			wanted: fitted(100, 200)},
		{name: "lower request", least: fitted(100, 200), wanted: fitted(50, 100)},
		{name: "lower request with the same limit", least: fitted(100, 200), wanted: fitted(50, 200)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.wanted, interpolate(tc.least, tc.wanted, k, 0))
		})
	}
	halfway := interpolate(fitted(100, 200), fitted(100, 400), k, policy.FullFraction/2)
	require.Equal(t, resources.Amount(100), halfway.Requests.Value(k))
	require.Equal(t, resources.Amount(300), halfway.Limits.Value(k), "a limit that grows alone goes the way")
}
