package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

func TestRollingOut(t *testing.T) {
	for _, tc := range []struct {
		name                       string
		wanted, updated, available int
		want                       bool
	}{
		{name: "complete", wanted: 3, updated: 3, available: 3},
		{name: "outdated pod", wanted: 3, updated: 2, available: 3, want: true},
		{name: "unavailable pod", wanted: 3, updated: 3, available: 2, want: true},
		{name: "no replicas"},
		{name: "surplus pod", wanted: 3, updated: 4, available: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, RollingOut(tc.wanted, tc.updated, tc.available))
		})
	}
}

func TestNode_GrowthBlocked(t *testing.T) {
	cpu, memory := [resources.Kinds]bool{true, false}, [resources.Kinds]bool{false, true}
	none := [resources.Kinds]bool{}
	for _, tc := range []struct {
		name  string
		node  Node
		grows [resources.Kinds]bool
		want  reason.Reason
	}{
		{name: "healthy node", node: Node{Known: true}, grows: memory},
		{name: "unknown node", grows: cpu, want: reason.NodeUnknown},
		{name: "unknown node without growth", grows: none},
		{name: "memory pressure", node: Node{Known: true, MemoryPressure: true}, grows: memory, want: reason.NodePressure},
		{name: "memory pressure while CPU grows", node: Node{Known: true, MemoryPressure: true}, grows: cpu},
		{name: "disk or PID pressure", node: Node{Known: true, DiskOrPIDPressure: true}, grows: cpu, want: reason.NodePressure},
		{name: "disk or PID pressure without growth", node: Node{Known: true, DiskOrPIDPressure: true}, grows: none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.node.growthBlocked(tc.grows))
		})
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
		"lifted": {
			has: sizes("app", 1, 512, 1, 1024), to: sizes("app", 1, 256, -1, 512),
			used: 600, margin: 10, limit: 660 * mi, req: 256 * mi,
		},
		"high enough": {
			has: sizes("app", 1, 512, 1, 1024), to: sizes("app", 1, 256, -1, 660),
			used: 600, margin: 10, limit: 660 * mi, req: 256 * mi,
		},
		"not above what it has": {
			has: sizes("app", 1, 512, 1, 1024), to: sizes("app", 1, 256, -1, 512),
			used: 1000, margin: 10, limit: 1024 * mi, req: 256 * mi,
		},
		"at least a byte": {
			has: sizes("app", 1, 512, 1, 1024), to: sizes("app", 1, 256, -1, 600),
			used: 600, margin: 0, limit: 600*mi + 1, req: 256 * mi,
		},
		"it rises": {
			has: sizes("app", 1, 512, 1, 1024), to: sizes("app", 1, 256, -1, 2048),
			used: 4000, margin: 10, limit: 2048 * mi, req: 256 * mi,
		},
		"it has none yet": {
			has: sizes("app", 1, 512, 1, -1), to: sizes("app", 1, 256, -1, 512),
			used: 600, margin: 10, limit: 512 * mi, req: 256 * mi,
		},
		"a request equal to its limit": {
			has: sizes("app", 1, 1024, 1, 1024), to: sizes("app", 1, 512, -1, 512),
			used: 600, margin: 10, limit: 660 * mi, req: 660 * mi,
		},
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
