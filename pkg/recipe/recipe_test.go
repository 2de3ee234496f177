package recipe

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/estimate"
)

func TestChoices(t *testing.T) {
	defaults := estimate.DefaultConfig()
	defaults.Target[amount.CPU], defaults.PodMinCPU = 0.8, 10
	b, err := NewBook("vpa", defaults)
	require.NoError(t, err)

	standard := b.For("")
	require.Equal(t, FromFlag, standard.Source)
	require.False(t, standard.Needs.Any(), "the recipe of the reference costs nothing")
	require.Equal(t, "cpu quantile 0.8", standard.Target[amount.CPU][0].Name)

	asked := b.For("loadline:cpu=tracking")
	require.Same(t, asked, b.For("loadline:cpu=tracking"))
	require.Equal(t, "loadline", asked.Name)
	require.Equal(t, Asked, asked.Source)
	require.Empty(t, asked.Problem)
	require.True(t, asked.Needs.Any())
	require.Equal(t, amount.Amount(5), asked.MinimumOf(2).Value(amount.CPU), "the floors of the flags hold for all recipes")
	require.Equal(t, "cpu quantile 0.8", b.For("vpa:margin=0.3").Target[amount.CPU][0].Name, "and its settings for that of the reference")

	wrong := b.For("loadline:cpu=frantic,salt=1")
	require.Equal(t, NotUsable, wrong.Source)
	require.Equal(t, "vpa", wrong.Name)
	require.Same(t, standard.Recipe, wrong.Recipe)
	for _, part := range []string{"annotation loadline.dev/recipe: ", `cpu is "frantic": must be one of calm, `, `; "salt" does not exist`, `the recipe is "vpa"`} {
		require.Contains(t, wrong.Problem, part)
	}
	require.NotContains(t, wrong.Problem, "\n")
	require.Equal(t, "vpa", b.For(" ").Name)

	_, err = NewBook("soup", defaults)
	require.ErrorContains(t, err, `recipe "soup" does not exist`)
}

func TestABookStaysThin(t *testing.T) {
	b, err := NewBook("vpa", estimate.DefaultConfig())
	require.NoError(t, err)
	for i := range 3 * mostParsed {
		require.NotNil(t, b.For("loadline:margin=0."+strconv.Itoa(i)))
		require.LessOrEqual(t, len(b.parsed), mostParsed+1)
	}
	require.Equal(t, FromFlag, b.For("").Source)
}
