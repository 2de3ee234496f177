package shares

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

func TestFacts_Decide(t *testing.T) {
	type kinds = [resources.Kinds]bool
	now := time.Date(2026, 1, 2, 12, 0, 0, 5, time.UTC)
	none, cpu, memory, both := kinds{}, kinds{resources.CPU: true}, kinds{resources.Memory: true}, kinds{true, true}
	shrunk := sharing.Mark{Kinds: cpu, At: now.Add(-time.Minute).Truncate(time.Second), Restarts: 1}
	reverted := sharing.Mark{Kinds: cpu, At: now.Add(-time.Hour).Truncate(time.Second), Restarts: 1, Reverted: true}
	with := func(m sharing.Mark, kinds kinds) sharing.Mark { m.Kinds = kinds; return m }
	for _, tc := range []struct {
		name  string
		facts facts
		want  decision
	}{
		{"ends", facts{state: Ending, kinds: cpu, ends: cpu, mark: shrunk}, decision{disruption.ShareEnded, cpu, shrunk, false}},
		{"ends, whatever else happened", facts{state: Ending, kinds: cpu, ends: cpu, mark: shrunk, harmed: true, killed: true, restarts: 4},
			decision{disruption.ShareEnded, cpu, shrunk, false}},
		{"new harm", facts{state: Active, kinds: both, mark: shrunk, harmed: true, killed: true, restarts: 4},
			decision{disruption.ShareReverted, both, sharing.Mark{Kinds: both, At: now.Truncate(time.Second), Restarts: 4, Reverted: true}, true}},
		{"new harm while nothing is known of the policy", facts{state: Pending, kinds: cpu, mark: shrunk, harmed: true, restarts: 4},
			decision{disruption.ShareReverted, cpu, sharing.Mark{Kinds: cpu, At: now.Truncate(time.Second), Restarts: 4, Reverted: true}, true}},
		{"harm in the last 24 hours", facts{state: Active, kinds: both, mark: reverted, killed: true}, decision{disruption.ShareReverted, both, with(reverted, both), false}},
		{"harm in the last 24 hours, waiting", facts{state: Pending, kinds: cpu, mark: reverted}, decision{disruption.ShareReverted, cpu, reverted, false}},
		{"harm before", facts{state: Pending, kinds: cpu, mark: sharing.Mark{Kinds: cpu, At: now.Add(-25 * time.Hour), Reverted: true}}, decision{}},
		{"killed", facts{state: Active, kinds: both, mark: shrunk, killed: true}, decision{disruption.ShareReverted, memory, with(shrunk, both), false}},
		{"killed, waiting", facts{state: Pending, kinds: both, mark: with(shrunk, both), killed: true}, decision{disruption.ShareReverted, memory, with(shrunk, both), false}},
		{"killed, and CPU is not shared any more", facts{state: Active, kinds: both, ends: cpu, mark: shrunk, killed: true},
			decision{disruption.ShareReverted, both, with(shrunk, both), false}},
		{"waits", facts{state: Pending, kinds: cpu, mark: shrunk}, decision{}},
		{"a kind is not shared any more", facts{state: Active, kinds: both, ends: cpu, mark: shrunk}, decision{disruption.Shared, cpu, with(shrunk, both), false}},
		{"shares", facts{state: Active, kinds: both, mark: shrunk}, decision{disruption.Shared, none, with(shrunk, both), false}},
		{"shares for the first time", facts{state: Active, kinds: cpu}, decision{disruption.Shared, none, sharing.Mark{Kinds: cpu}, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.facts.now = now
			require.Equal(t, tc.want, tc.facts.decide())
		})
	}
}
