package cookbook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/estimate"
	"loadline.dev/loadline/pkg/core/profile"
)

// The floors of the reference are no part of the recipes of others. What somebody set, by
// a flag or with the recipe, holds for all.
func TestRecipesHaveTheirOwnFloors(t *testing.T) {
	reference, asked := amount.Of(25, 250*mib), estimate.DefaultConfig()
	asked.PodMinMemory, asked.PodMinSet[amount.Memory] = 100, true
	for _, name := range Names() {
		lifted := name == "vpa" || name == "loadline"
		require.Equal(t, lifted, parse(t, name).Minimum == reference, name)
		if !lifted {
			require.Equal(t, amount.Of(0, 0), parse(t, name).Minimum, name)
		}
		given, err := ParseWith(asked, name)
		require.NoError(t, err)
		require.Equal(t, amount.Amount(100*mib), given.Minimum.Value(amount.Memory), name)
		require.Equal(t, lifted, given.Minimum.Value(amount.CPU) == 25, name)
		require.Equal(t, amount.Amount(7), parse(t, name+":pod-min-cpu=7").Minimum.Value(amount.CPU), name)
	}
}

// A container that uses next to nothing gets the least that its recipe knows of.
func TestTheLeastOfEachRecipe(t *testing.T) {
	for text, want := range map[string]amount.Resources{
		"vpa": amount.Of(25, 250*mib), "loadline": amount.Of(25, 250*mib),
		"crane":      amount.Of(114, 120586239), // the first bucket
		"attune":     amount.Of(3, 4*mib),
		"cruisekube": amount.Of(1, 16e6),
		"autopilot":  amount.Of(1, 1),
	} {
		r := parse(t, text)
		p, l := profile.New(profile.NewShape(24*time.Hour, 24*time.Hour)), live(t, text)
		l.recipe = r
		for k := range amount.Kind(amount.Kinds) {
			l.at = start
			l.use(k, 0, 8*24*time.Hour)
		}
		got := r.For(estimate.Subject{Profile: &p, Trail: l.trail, Minimum: r.Minimum}).Target
		require.LessOrEqual(t, got.Value(amount.CPU), want.Value(amount.CPU)+1, text)
		require.GreaterOrEqual(t, got.Value(amount.CPU), want.Value(amount.CPU), text)
		require.GreaterOrEqual(t, got.Value(amount.Memory), want.Value(amount.Memory), text)
		require.LessOrEqual(t, float64(got.Value(amount.Memory)), 1.01*float64(want.Value(amount.Memory))+20, text)
	}
}
