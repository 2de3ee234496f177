package sharing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/reason"
)

func TestRespondToOOM(t *testing.T) {
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name   string
		change func(k *OOMKill)
		want   OOMResponse
	}{
		{name: "first kill", change: func(*OOMKill) {}, want: OOMResponse{Recorded: true, MayEvict: true}},
		{name: "recorded kill", change: func(k *OOMKill) { k.Recorded = at }, want: OOMResponse{Recorded: true, MayEvict: true}},
		{
			name:   "another kill within the cooldown",
			change: func(k *OOMKill) { k.Recorded = at.Add(-OOMCooldown + time.Second) },
			want:   OOMResponse{Reason: reason.OOMCooling},
		},
		{
			name:   "after the cooldown",
			change: func(k *OOMKill) { k.Recorded = at.Add(-OOMCooldown) },
			want:   OOMResponse{Recorded: true, MayEvict: true},
		},
		{
			name:   "no recommendation",
			change: func(k *OOMKill) { k.Recommended, k.Shared = false, false },
			want:   OOMResponse{Recorded: true, Reason: reason.NoRecommendation},
		},
		{
			name:   "memory is not shared",
			change: func(k *OOMKill) { k.Shared, k.Gone = false, true },
			want:   OOMResponse{Recorded: true, Reason: reason.MemoryNotShared},
		},
		{
			name:   "pod is gone",
			change: func(k *OOMKill) { k.Gone, k.Excluded = true, true },
			want:   OOMResponse{Recorded: true, Reason: reason.Terminating},
		},
		{
			name:   "excluded",
			change: func(k *OOMKill) { k.Excluded, k.Off = true, true },
			want:   OOMResponse{Recorded: true, Reason: reason.Excluded},
		},
		{
			name:   "opted out",
			change: func(k *OOMKill) { k.Off, k.Rank = true, Never },
			want:   OOMResponse{Recorded: true, Reason: reason.SharingOff},
		},
		{name: "pod is never evicted", change: func(k *OOMKill) { k.Rank = Never }, want: OOMResponse{Recorded: true}},
		{name: "policy does not evict", change: func(k *OOMKill) { k.Evict = false }, want: OOMResponse{Recorded: true}},
		{
			name:   "cooldown precedes other reasons",
			change: func(k *OOMKill) { k.Recorded, k.Gone = at.Add(-time.Minute), true },
			want:   OOMResponse{Reason: reason.OOMCooling},
		},
		{
			name:   "highest rank that allows eviction",
			change: func(k *OOMKill) { k.Rank = High },
			want:   OOMResponse{Recorded: true, MayEvict: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := OOMKill{At: at, Recommended: true, Shared: true, Evict: true}
			tc.change(&k)
			require.Equal(t, tc.want, RespondToOOM(k))
		})
	}
}
