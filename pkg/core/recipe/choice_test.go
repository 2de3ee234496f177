package recipe

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestCache_ForAnnotation(t *testing.T) {
	defaults := DefaultConfig()
	defaults.Target[resources.CPU], defaults.PodMinCPU = 0.8, 10
	b, err := NewCache("vpa", defaults)
	require.NoError(t, err)

	standard := b.ForAnnotation("")
	require.Equal(t, FromFlag, standard.Source)
	require.False(t, standard.Needs.Any(), "the recipe of the reference costs nothing")
	require.Equal(t, "cpu quantile 0.8", standard.Target[resources.CPU][0].Name)

	asked := b.ForAnnotation("loadline:cpu=tracking")
	require.Same(t, asked, b.ForAnnotation("loadline:cpu=tracking"))
	require.Equal(t, "loadline", asked.Name)
	require.Equal(t, FromAnnotation, asked.Source)
	require.Empty(t, asked.Problem)
	require.True(t, asked.Needs.Any())
	require.Equal(t, resources.Amount(5), asked.Minimum(2).Value(resources.CPU), "the floors of the flags hold for all recipes")
	require.Equal(t, "cpu quantile 0.8", b.ForAnnotation("vpa:margin=0.3").Target[resources.CPU][0].Name, "and its settings for that of the reference")

	wrong := b.ForAnnotation("loadline:cpu=frantic,salt=1")
	require.Equal(t, InvalidText, wrong.Source)
	require.Equal(t, "vpa", wrong.Name)
	require.Same(t, standard.Recipe, wrong.Recipe)
	for _, part := range []string{"annotation loadline.dev/recipe: ", `cpu is "frantic": must be one of calm, `, `; "salt" does not exist`, `; using recipe "vpa" of the recommender until this is fixed`} {
		require.Contains(t, wrong.Problem, part)
	}
	require.NotContains(t, wrong.Problem, "\n")
	require.Equal(t, "vpa", b.ForAnnotation(" ").Name)

	_, err = NewCache("soup", defaults)
	require.ErrorContains(t, err, `recipe "soup" does not exist`)
}

func TestCache_IsBounded(t *testing.T) {
	b, err := NewCache("vpa", DefaultConfig())
	require.NoError(t, err)
	for i := range 3 * maxParsed {
		require.NotNil(t, b.ForAnnotation("loadline:margin=0."+strconv.Itoa(i)))
		require.LessOrEqual(t, len(b.parsed), maxParsed+1)
	}
	require.Equal(t, FromFlag, b.ForAnnotation("").Source)
}

// A VPA author must not be able to fill the memory of the recommender or the status of the VPA.
func TestCache_RejectsLongText(t *testing.T) {
	b, err := NewCache("vpa", DefaultConfig())
	require.NoError(t, err)
	for i := range 10 {
		long := b.ForAnnotation("loadline:" + strings.Repeat("a=1,", 50000) + strconv.Itoa(i))
		require.Equal(t, InvalidText, long.Source)
		require.Contains(t, long.Problem, "must have at most 1000 characters, has 200010; using recipe ")
	}
	require.Empty(t, b.parsed)
	many := "autopilot:"
	for i := range 100 {
		many += "ä" + strconv.Itoa(i) + "=1,"
	}
	wrong := b.ForAnnotation(many)
	require.Equal(t, InvalidText, wrong.Source)
	require.Less(t, len(wrong.Problem), 3300)
	require.True(t, utf8.ValidString(wrong.Problem))
	require.Contains(t, wrong.Problem, `and so on; using recipe "vpa"`)
}

// Each VPA may have its own settings.
func TestCache_FineBucketsAllocateLittle(t *testing.T) {
	b, err := NewCache("vpa", DefaultConfig())
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 10 {
		require.Empty(t, b.ForAnnotation("crane:cpu-bucket-cores=0.001,memory-bucket-bytes=1048576,cpu-margin=0."+strconv.Itoa(i)).Problem)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(10*64<<10))
}
