package view

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/sizing"
)

func oneOf[T any](random *rand.Rand, all ...T) T { return all[random.IntN(len(all))] }

// remembered is any state of a workload, most often one that fits its policy.
func remembered(random *rand.Rand, now time.Time) rollout.State {
	sizes := []policy.Container{{Name: "app", Requests: resources.List{}.With(resources.CPU, 100)}}
	s := rollout.State{
		Mode: oneOf(random, fleet.Auto, fleet.Auto, fleet.OneShot, fleet.Canary), Hash: oneOf(random, "h", "h", "h", "other", ""),
		Phase:         oneOf(random, "", "", rollout.PhaseFullRollout, rollout.PhaseFullRollout, rollout.PhaseCanary, rollout.PhaseHalted),
		CooldownUntil: now.Add(oneOf(random, -time.Hour, time.Minute, 30*time.Hour)),
	}
	for range random.IntN(5) {
		s.Rounds = append(s.Rounds, rollout.Round{
			Time: now.Add(-time.Duration(random.IntN(300)) * time.Minute), Pods: random.IntN(2),
			Outcome: oneOf(random, rollout.Success, rollout.Reverted, rollout.Reverted, rollout.Failed),
		})
	}
	if len(s.Rounds) > 0 && random.IntN(4) == 0 {
		s.Rounds[0].Outcome = ""
	}
	if random.IntN(4) == 0 {
		s.Kept, s.Reverted = sizes, []rollout.RevertedSizes{{Container: sizes[0], At: now.Add(-oneOf(random, time.Hour, 200*time.Hour))}}
	}
	if random.IntN(3) == 0 {
		s.Members, s.CanarySince = []rollout.Member{{UID: oneOf(random, "0", "gone"), Outcome: oneOf(random, "", rollout.Success, rollout.Reverted)}}, now.Add(-time.Hour)
	}
	for _, c := range []*rollout.Condition{&s.Degraded, &s.ResizeBlocked, &s.ScheduleBlocked} {
		if random.IntN(6) == 0 {
			*c = rollout.Condition{Reason: "any", Since: now.Add(-time.Hour)}
		}
	}
	return s
}

// What a resting workload is not asked would have been answered with nothing.
func TestAQuietRolloutHasNothingToSay(t *testing.T) {
	now, random, quiet := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC), rand.New(rand.NewPCG(1, 2)), map[fleet.Mode]int{}
	closed := &rollout.Schedule{Windows: []rollout.Window{{Start: 22 * 60, End: 23 * 60}}, Zone: time.UTC}
	for range 200_000 {
		s := remembered(random, now)
		of := &Rollout{Mode: oneOf(random, fleet.Inherit, fleet.OneShot, fleet.Canary, fleet.Auto), Settings: rollout.Settings{
			Hash: oneOf(random, "h", "h", ""), Percentage: 10, AutoPromote: random.IntN(2) == 0, Recreate: random.IntN(2) == 0,
			Cooldown: time.Hour, MaxConcurrent: random.IntN(3), Schedule: oneOf(random, nil, closed),
		}}
		mode := oneOf(random, disruption.InPlace, disruption.InPlaceOrRecreate, disruption.Recreate)
		if !of.quietWith(s, mode) {
			continue
		}
		quiet[of.Mode]++
		w := rollout.Workload{Mode: of.Mode, Rolling: random.IntN(2) == 0}
		for i := range random.IntN(4) {
			w.Pods = append(w.Pods, rollout.Pod{
				UID: string(rune('0' + i)), Running: random.IntN(4) > 0, Terminating: random.IntN(8) == 0, Ready: random.IntN(2) == 0,
				Node: rollout.Node{Known: random.IntN(2) == 0, MemoryPressure: random.IntN(4) == 0}, Passed: now.Add(-time.Hour),
			})
		}
		held := rollout.Hold(s, w, of.Settings, now)
		require.False(t, len(s.Rounds) > 0 && held.State.Turned(s), "nothing new is to be stored: %+v\n%+v", s, held.State)
		require.Empty(t, held.Canary)
		require.Empty(t, held.State.ScheduleBlocked)
		require.False(t, mode == disruption.Recreate && !held.Evict, "the pods would be held for that")
		for _, answer := range held.Pods {
			require.False(t, answer.Free)
			require.Empty(t, answer.Reason)
		}
	}
	require.Zero(t, quiet[fleet.Inherit])
	for _, mode := range []fleet.Mode{fleet.OneShot, fleet.Canary, fleet.Auto} {
		require.Greater(t, quiet[mode], 500, "else this shows little: %s", mode)
	}
}

// An event, or a reason of its pods, tells people of what is left out.
func TestARolloutThatLeavesSomethingOutIsNotQuiet(t *testing.T) {
	some := resources.List{}.With(resources.CPU, 100)
	require.True(t, (&Rollout{Mode: fleet.Auto}).quietWith(rollout.State{}, disruption.InPlace))
	for name, of := range map[string]*Rollout{
		"HPA":   {Mode: fleet.Auto, HPA: true},
		"left":  {Mode: fleet.Auto, limits: limits{left: sizing.LookedAt{"app": {true}}}},
		"floor": {Mode: fleet.Auto, limits: limits{floors: map[string]resources.List{"app": some}}},
	} {
		require.False(t, of.quietWith(rollout.State{}, disruption.InPlace), name)
	}
}
