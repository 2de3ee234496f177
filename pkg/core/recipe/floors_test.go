package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// The floors of the reference VPA apply to other recipes only if they are set explicitly.
func TestFloors_PerRecipe(t *testing.T) {
	reference, asked := resources.NewList(25, 250*mib), DefaultConfig()
	asked.PodMinMemory, asked.PodMinSet[resources.Memory] = 100, true
	for _, name := range Names() {
		lifted := name == "vpa" || name == "loadline"
		require.Equal(t, lifted, parsed(t, name).Minimum(1) == reference, name)
		if !lifted {
			require.Equal(t, resources.NewList(0, 0), parsed(t, name).Minimum(1), name)
		}
		given, err := ParseWith(asked, name)
		require.NoError(t, err)
		require.Equal(t, resources.Amount(100*mib), given.Minimum(1).Value(resources.Memory), name)
		require.Equal(t, lifted, given.Minimum(1).Value(resources.CPU) == 25, name)
		require.Equal(t, resources.Amount(7), parsed(t, name+":pod-min-cpu=7").Minimum(1).Value(resources.CPU), name)
	}
}

func TestRecipe_IdleContainerGetsMinimum(t *testing.T) {
	for _, tc := range []struct {
		recipe string
		want   resources.List
	}{
		{recipe: "vpa", want: resources.NewList(25, 250*mib)},
		{recipe: "loadline", want: resources.NewList(25, 250*mib)},
		{recipe: "crane", want: resources.NewList(114, 120586239)}, // the first bucket
		{recipe: "attune", want: resources.NewList(3, 4*mib)},
		{recipe: "cruisekube", want: resources.NewList(1, 16e6)},
		{recipe: "autopilot", want: resources.NewList(1, 1)},
	} {
		t.Run(tc.recipe, func(t *testing.T) {
			r := parsed(t, tc.recipe)
			p, l := usage.NewProfile(usage.NewProfileShape(24*time.Hour, 24*time.Hour)), live(t, tc.recipe)
			l.recipe = r
			for k := range resources.Kind(resources.Kinds) {
				l.at = start
				l.use(k, 0, 8*24*time.Hour)
			}
			got := r.Recommend(Input{Profile: &p, Sketch: l.sketch, Containers: 1}).Bounds.Target
			require.LessOrEqual(t, got.Value(resources.CPU), tc.want.Value(resources.CPU)+1)
			require.GreaterOrEqual(t, got.Value(resources.CPU), tc.want.Value(resources.CPU))
			require.GreaterOrEqual(t, got.Value(resources.Memory), tc.want.Value(resources.Memory))
			require.LessOrEqual(t, float64(got.Value(resources.Memory)), 1.01*float64(tc.want.Value(resources.Memory))+20)
		})
	}
}
