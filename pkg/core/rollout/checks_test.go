package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestRollingOut(t *testing.T) {
	for _, c := range []struct {
		wanted, updated, available int
		want                       bool
	}{{3, 3, 3, false}, {3, 2, 3, true}, {3, 3, 2, true}, {0, 0, 0, false}, {3, 4, 4, false}} {
		require.Equal(t, c.want, RollingOut(c.wanted, c.updated, c.available), c)
	}
}

func TestNode_GrowthBlocked(t *testing.T) {
	cpu, memory := [resources.Kinds]bool{true, false}, [resources.Kinds]bool{false, true}
	none := [resources.Kinds]bool{}
	for name, c := range map[string]struct {
		node  Node
		grows [resources.Kinds]bool
		want  reason.Reason
	}{
		"well": {Node{Known: true}, memory, ""}, "unknown": {Node{}, cpu, reason.NodeUnknown}, "unknown, and nothing grows": {Node{}, none, ""},
		"lacks memory": {Node{Known: true, MemoryPressure: true}, memory, reason.NodePressure}, "CPU is no memory": {Node{Known: true, MemoryPressure: true}, cpu, ""},
		"lacks disk": {Node{Known: true, DiskOrPIDPressure: true}, cpu, reason.NodePressure}, "shrinks": {Node{Known: true, DiskOrPIDPressure: true}, none, ""},
	} {
		require.Equal(t, c.want, c.node.growthBlocked(c.grows), name)
	}
}

func TestClampMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		has        policy.Container
		to         policy.Container
		used       resources.Amount // MiB
		margin     int
		limit, req resources.Amount
	}{
		"lifted":                       {sizes("app", 1, 512, 1, 1024), sizes("app", 1, 256, -1, 512), 600, 10, 660 * mi, 256 * mi},
		"high enough":                  {sizes("app", 1, 512, 1, 1024), sizes("app", 1, 256, -1, 660), 600, 10, 660 * mi, 256 * mi},
		"not above what it has":        {sizes("app", 1, 512, 1, 1024), sizes("app", 1, 256, -1, 512), 1000, 10, 1024 * mi, 256 * mi},
		"at least a byte":              {sizes("app", 1, 512, 1, 1024), sizes("app", 1, 256, -1, 600), 600, 0, 600*mi + 1, 256 * mi},
		"it rises":                     {sizes("app", 1, 512, 1, 1024), sizes("app", 1, 256, -1, 2048), 4000, 10, 2048 * mi, 256 * mi},
		"it has none yet":              {sizes("app", 1, 512, 1, -1), sizes("app", 1, 256, -1, 512), 600, 10, 512 * mi, 256 * mi},
		"a request equal to its limit": {sizes("app", 1, 1024, 1, 1024), sizes("app", 1, 512, -1, 512), 600, 10, 660 * mi, 660 * mi},
	} {
		t.Run(name, func(t *testing.T) {
			got := ClampMemoryLimit(c.has, policy.ContainerTarget{Requests: c.to.Requests, Limits: c.to.Limits}, c.used*mi, c.margin)
			require.Equal(t, c.limit, got.Limits.Value(resources.Memory))
			require.Equal(t, c.req, got.Requests.Value(resources.Memory))
		})
	}
	untouched := policy.ContainerTarget{Requests: resources.NewList(1, 1)}
	require.Equal(t, untouched, ClampMemoryLimit(sizes("app", 1, 1, 1, 1), untouched, 5*mi, 10), "no limit is written")
}
