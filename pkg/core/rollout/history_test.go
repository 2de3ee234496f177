package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var outcomes = map[rune]Outcome{'S': Success, 'R': Reverted, 'F': Failed, 'E': Evicted, 'U': Unobserved, 'P': Superseded, '.': ""}

// past returns a state with rounds, given oldest first.
func past(text string) (s State) {
	for _, letter := range text {
		s.Rounds = append([]Round{{Outcome: outcomes[letter], Pods: 1}}, s.Rounds...)
	}
	return s
}

func TestReverts_CountsConsecutiveRounds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rounds string
		want   int
	}{
		{name: "no rounds"},
		{name: "success", rounds: "S"},
		{name: "revert", rounds: "R", want: 1},
		{name: "two reverts", rounds: "RR", want: 2},
		{name: "success after reverts", rounds: "RRS"},
		{name: "reverts after a success", rounds: "SRR", want: 2},
		{name: "failure between reverts", rounds: "RFR", want: 2},
		{name: "failure after reverts", rounds: "RRRF", want: 3},
		{name: "eviction after reverts", rounds: "RRE", want: 2},
		{name: "unobserved and superseded between reverts", rounds: "RUPR", want: 2},
		{name: "success between reverts", rounds: "RSR", want: 1},
		{name: "open round after reverts", rounds: "RR.", want: 2},
		{name: "no revert", rounds: "FEUP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, past(tc.rounds).Reverts())
		})
	}
}

func TestDegraded_NeedsThreeRevertsInFiveRounds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rounds string
		want   bool
	}{
		{name: "no rounds"},
		{name: "two reverts", rounds: "RR"},
		{name: "three reverts", rounds: "RRR", want: true},
		{name: "three reverts in five rounds", rounds: "RRRSS", want: true},
		{name: "three reverts in six rounds", rounds: "RRRSSS"},
		{name: "every second round", rounds: "SRSRSR", want: true},
		{name: "two reverts in five rounds", rounds: "RSSRSR"},
		{name: "failures between reverts", rounds: "RFRFR", want: true},
		{name: "failures after reverts", rounds: "RRRFFF"},
		{name: "open round after five rounds", rounds: "RRRSS.", want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, degraded(past(tc.rounds).Rounds))
		})
	}
}

func TestCooldown_DoublesUpToSixteenTimes(t *testing.T) {
	for reverts, want := range []time.Duration{1, 2, 4, 8, 16, 16, 16} {
		require.Equal(t, want*time.Hour, Cooldown(time.Hour, reverts))
	}
	require.Equal(t, 2*time.Minute, Cooldown(time.Second, 1), "less than a minute counts as a minute")
	require.Zero(t, Cooldown(0, 3), "none")
	require.Zero(t, Cooldown(-time.Hour, 3))
}

func TestCooldown_ToleratesClockSkew(t *testing.T) {
	now := at("2026-03-02T12:00:00Z")
	for name, c := range map[string]struct {
		left, want time.Duration
	}{
		"over":                           {0, 0},
		"lasts":                          {time.Minute, time.Minute},
		"just begun":                     {time.Hour, time.Hour},
		"begun by a clock an hour ahead": {2 * time.Hour, time.Hour},
		"no clock of ours":               {2*time.Hour + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			until, lasts := State{CooldownUntil: now.Add(c.left)}.cooldown(time.Hour, now)
			require.Equal(t, c.want > 0, lasts)
			if lasts {
				require.Equal(t, now.Add(c.want), until)
			}
		})
	}
	_, lasts := State{CooldownUntil: now.Add(time.Minute)}.cooldown(0, now)
	require.False(t, lasts, "a policy without cooldown waits for none of before")
	_, lasts = State{Rounds: past("RR").Rounds, CooldownUntil: now.Add(4 * time.Hour)}.cooldown(time.Hour, now)
	require.True(t, lasts, "two reverts")
}

func TestState_KeepsTwentyRounds(t *testing.T) {
	s := past("SSSSSSSSSSSSSSSSSSSS")
	s.openRound(at("2026-03-02T12:00:00Z"))
	require.Len(t, s.Rounds, 20)
	require.Equal(t, at("2026-03-02T12:00:00Z"), s.Rounds[0].Time)
	require.Empty(t, s.Rounds[0].Outcome)
}
