package usage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/usage"
)

func TestPages_KeepAddresses(t *testing.T) {
	var p usage.Pages[int32, int]
	first := p.At(p.Add())
	for i := range int32(1000) {
		require.Equal(t, i+1, p.Add())
		*p.At(i + 1) = int(i)
	}
	*first = 7
	require.Equal(t, 7, *p.At(0))
	require.Equal(t, 998, *p.At(999))
	require.EqualValues(t, 1001, p.Len())
}

func TestPages_TruncateReleasesPages(t *testing.T) {
	var p usage.Pages[int32, int]
	for range 200 {
		*p.At(p.Add()) = 1
	}
	p.Truncate(65)
	require.EqualValues(t, 65, p.Len())
	require.Equal(t, int32(65), p.Add())
	require.Panics(t, func() { p.At(128) }, "the third page is gone")
	p.Truncate(0)
	require.Equal(t, int32(0), p.Add())
	require.Zero(t, *p.At(0), "a page that was given back is not used again")
}

func TestIndex_MatchesMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		index, plain := usage.NewIndex[string, int](), map[[2]string]int{}
		for i := range 60 {
			namespace, key := fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "namespace")), fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "key"))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				index.Put(namespace, key, i)
				plain[[2]string{namespace, key}] = i
			case 1:
				index.Remove(namespace, key)
				delete(plain, [2]string{namespace, key})
			}
			want, wanted := plain[[2]string{namespace, key}]
			value, known := index.Find(namespace, key)
			require.Equal(t, wanted, known)
			require.Equal(t, want, value)
			value, known = index.FindCached(namespace, key)
			require.Equal(t, wanted, known)
			require.Equal(t, want, value)
		}
	})
}
