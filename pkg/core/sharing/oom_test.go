package sharing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/reason"
)

func TestRespondToOOM(t *testing.T) {
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(k *OOMKill)
		want   OOMResponse
	}{
		"the first":                  {func(*OOMKill) {}, OOMResponse{Recorded: true, MayEvict: true}},
		"the one that was recorded":  {func(k *OOMKill) { k.Recorded = at }, OOMResponse{Recorded: true, MayEvict: true}},
		"another one soon":           {func(k *OOMKill) { k.Recorded = at.Add(-OOMCooldown + time.Second) }, OOMResponse{Reason: reason.OOMCooling}},
		"after the cooldown":         {func(k *OOMKill) { k.Recorded = at.Add(-OOMCooldown) }, OOMResponse{Recorded: true, MayEvict: true}},
		"nothing is recommended":     {func(k *OOMKill) { k.Recommended, k.Shared = false, false }, OOMResponse{Recorded: true, Reason: reason.NoRecommendation}},
		"memory is not shared":       {func(k *OOMKill) { k.Shared, k.Gone = false, true }, OOMResponse{Recorded: true, Reason: reason.MemoryNotShared}},
		"the pod is gone":            {func(k *OOMKill) { k.Gone, k.Excluded = true, true }, OOMResponse{Recorded: true, Reason: reason.Terminating}},
		"excluded":                   {func(k *OOMKill) { k.Excluded, k.Off = true, true }, OOMResponse{Recorded: true, Reason: reason.Excluded}},
		"opted out":                  {func(k *OOMKill) { k.Off, k.Rank = true, Never }, OOMResponse{Recorded: true, Reason: reason.SharingOff}},
		"it is never evicted":        {func(k *OOMKill) { k.Rank = Never }, OOMResponse{Recorded: true}},
		"the policy does not evict":  {func(k *OOMKill) { k.Evict = false }, OOMResponse{Recorded: true}},
		"the cooldown goes before":   {func(k *OOMKill) { k.Recorded, k.Gone = at.Add(-time.Minute), true }, OOMResponse{Reason: reason.OOMCooling}},
		"the last rank but for that": {func(k *OOMKill) { k.Rank = High }, OOMResponse{Recorded: true, MayEvict: true}},
	} {
		k := OOMKill{At: at, Recommended: true, Shared: true, Evict: true}
		c.change(&k)
		require.Equal(t, c.want, RespondToOOM(k), name)
	}
}
