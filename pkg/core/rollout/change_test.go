package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

const mi = 1 << 20

// sizes is a container with CPU in millicores and memory in MiB. A negative amount means absent.
func sizes(name string, cpu, memory, cpuLimit, memoryLimit resources.Amount) policy.Container {
	c := policy.Container{Name: name}
	for k, a := range map[resources.Kind][2]resources.Amount{resources.CPU: {cpu, cpuLimit}, resources.Memory: {memory * mi, memoryLimit * mi}} {
		if a[0] >= 0 {
			c.Requests = c.Requests.With(k, a[0])
		}
		if a[1] >= 0 {
			c.Limits = c.Limits.With(k, a[1])
		}
	}
	return c
}

func requests(name string, cpu, memory resources.Amount) policy.Container {
	return sizes(name, cpu, memory, -1, -1)
}

func running(containers ...policy.Container) (all []RunningContainer) {
	for _, c := range containers {
		all = append(all, RunningContainer{Container: c})
	}
	return all
}

func TestRevertTargets_OnlyRaisesResources(t *testing.T) {
	c := Change{Containers: []ContainerChange{{From: sizes("app", 500, 100, 1000, 200), To: sizes("app", 200, 300, 400, 600)}}}
	gets := c.RevertTargets(running(sizes("app", 200, 300, 400, 600), sizes("sidecar", 10, 10, -1, -1)), Throttle)
	require.Equal(t, []policy.ContainerTarget{{
		Name: "app", Requests: resources.List{}.With(resources.CPU, 500), Limits: resources.List{}.With(resources.CPU, 1000),
	}}, gets, "memory that was raised stays, and a container that was not changed is not named")
	require.Empty(t, c.RevertTargets(running(sizes("app", 500, 300, 1000, 600)), Throttle), "nothing is left to give")
}

func TestRevertTargets_RestartsOnlyFailingContainers(t *testing.T) {
	c := Change{Containers: []ContainerChange{{From: requests("app", 500, 200), To: requests("app", 100, 100)}}}
	now := running(requests("app", 100, 100))
	now[0].Restarts[resources.Memory] = true
	for why, want := range map[Harm]resources.List{
		OOMKill: resources.NewList(500, 200*mi), Restart: resources.NewList(500, 200*mi),
		Throttle: resources.List{}.With(resources.CPU, 500), NotReady: resources.List{}.With(resources.CPU, 500),
	} {
		require.Equal(t, want, c.RevertTargets(now, why)[0].Requests, why)
	}
}

func TestRevertTargets_KeepsQoSClass(t *testing.T) {
	// The pod is Burstable before and after the change. The higher request of each resource would
	// make it Guaranteed.
	c := Change{Containers: []ContainerChange{{From: sizes("app", 100, 200, 200, 200), To: sizes("app", 200, 100, 200, 200)}}}
	got := c.RevertTargets(running(sizes("app", 200, 100, 200, 200)), OOMKill)
	require.Equal(t, resources.List{}.With(resources.Memory, 200*mi-1), got[0].Requests)
	got = c.RevertTargets(running(sizes("app", 200, 100, 200, 200), requests("sidecar", 1, 1)), OOMKill)
	require.Equal(t, resources.List{}.With(resources.Memory, 200*mi), got[0].Requests, "the sidecar keeps it from being Guaranteed")

	got = c.RevertTargets(running(sizes("app", 200, 100, 200, 200), sizes("sidecar", -1, -1, 5, 5)), OOMKill)
	require.Equal(t, resources.List{}.With(resources.Memory, 200*mi-1), got[0].Requests, "without requests it has those of its limits")

	c = Change{Containers: []ContainerChange{{From: sizes("app", 500, 200, 500, 200), To: sizes("app", 200, 300, 200, 300)}}}
	got = c.RevertTargets(running(sizes("app", 200, 300, 200, 300)), Throttle)
	require.Equal(t, resources.List{}.With(resources.CPU, 500), got[0].Requests)
	require.Equal(t, resources.List{}.With(resources.CPU, 500), got[0].Limits, "Guaranteed stays so")
}

func TestRevertTargets_KeepsAddedLimit(t *testing.T) {
	c := Change{Containers: []ContainerChange{{From: requests("app", 500, 200), To: sizes("app", 200, 200, 400, -1)}}}
	require.True(t, c.Containers[0].lowersLimit(resources.CPU), "from no limit to one")
	got := c.RevertTargets(running(sizes("app", 200, 200, 400, -1)), Throttle)
	require.Equal(t, resources.List{}.With(resources.CPU, 500), got[0].Requests)
	require.True(t, got[0].Limits.Empty())
}

func TestChange_RenewedKeepsFirstResources(t *testing.T) {
	first := Change{At: at("2026-03-02T12:00:00Z"), Ready: true, Containers: []ContainerChange{
		{From: requests("app", 500, 200), To: requests("app", 200, 100), Restarts: 1},
		{From: requests("agent", 100, 100), To: requests("agent", 50, -1)},
	}}
	// After a kill only memory is raised.
	second := Change{At: at("2026-03-02T12:03:00Z"), Containers: []ContainerChange{{From: requests("app", 200, 100), To: requests("app", -1, 400), Restarts: 2}}}
	both := first.Renewed(second)
	require.Equal(t, second.At, both.At)
	require.True(t, both.Ready, "it was, before the first change")
	require.Equal(t, []ContainerChange{
		{From: requests("agent", 100, 100), To: requests("agent", 50, -1)},
		{From: requests("app", 500, 200), To: requests("app", 200, 400), Restarts: 2},
	}, both.Containers)
	require.Equal(t, requests("app", 200, 100), second.Containers[0].From, "what it was given is not changed")
}

func drawSizes(t *rapid.T, name string) policy.Container {
	c := policy.Container{Name: name}
	for k := range resources.Kind(resources.Kinds) {
		request := resources.Amount(rapid.IntRange(0, 4).Draw(t, "request"))
		if request > 0 {
			c.Requests = c.Requests.With(k, request)
		}
		if rapid.Bool().Draw(t, "limited") {
			c.Limits = c.Limits.With(k, request+resources.Amount(rapid.IntRange(0, 2).Draw(t, "more")))
		}
	}
	return c
}

func TestRevertTargets_NeverLowersResources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Change{At: time.Unix(0, 0)}
		var now []RunningContainer
		for _, name := range []string{"a", "b"} {
			c.Containers = append(c.Containers, ContainerChange{From: drawSizes(t, name), To: drawSizes(t, name)})
			now = append(now, RunningContainer{Container: drawSizes(t, name), Restarts: [2]bool{rapid.Bool().Draw(t, "restarts")}})
		}
		for _, f := range c.RevertTargets(now, rapid.SampledFrom([]Harm{OOMKill, Throttle}).Draw(t, "why")) {
			i := 0
			if f.Name == "b" {
				i = 1
			}
			for k := range resources.Kind(resources.Kinds) {
				if a, ok := f.Requests.Get(k); ok {
					require.Greater(t, a, now[i].Requests.Value(k))
					require.LessOrEqual(t, a, max(now[i].Requests.Value(k), c.Containers[i].From.Requests.Value(k)))
				}
				if a, ok := f.Limits.Get(k); ok {
					require.Equal(t, c.Containers[i].From.Limits.Value(k), a)
					require.Greater(t, a, now[i].Limits.Value(k))
				}
			}
		}
	})
}
