package sketch

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestLimitRatioOf(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		request, limit resources.Amount
		want           LimitRatio
		ratio          float64 // 0 = none
	}{
		{100 * mib, 100 * mib, 100, 1},
		{100 * mib, 120 * mib, 120, 1.2},
		{104857601, 125829119, 120, 1.2}, // as after changes of both, rounded down to a byte
		{1000, 1004, 100, 1},
		{1000, 1006, 101, 1.01},
		{0, 50 * mib, 100, 1}, // the request defaults to the limit
		{100 * mib, 0, Free, 0},
		{0, 0, Free, 0},
		{100, 50, 100, 1}, // rejected by the API server
		{1, math.MaxInt64, Free - 1, 655.34},
	} {
		got := LimitRatioOf(c.request, c.limit)
		require.Equal(t, c.want, got, "%d, %d", c.request, c.limit)
		ratio, some := got.Ratio()
		require.Equal(t, c.ratio != 0, some)
		if some {
			require.InDelta(t, c.ratio, ratio, 1e-9)
		}
	}
	_, some := Unseen.Ratio()
	require.False(t, some)
}

func TestTheTighterLimitRatio(t *testing.T) {
	for _, c := range []struct{ a, b, want LimitRatio }{
		{Unseen, Unseen, Unseen}, {Unseen, 120, 120}, {Unseen, Free, Free}, {100, 120, 100}, {120, Free, 120}, {Free, Free, Free},
	} {
		require.Equal(t, c.want, c.a.Tighter(c.b))
		require.Equal(t, c.want, c.b.Tighter(c.a))
	}
}

func TestLimitRatioIsKept(t *testing.T) {
	tr := New(Needs{LimitRatio: true})
	require.False(t, tr.Limited(Unseen))
	require.True(t, tr.Limited(120))
	require.False(t, tr.Limited(120))
	require.False(t, tr.Limited(Unseen))
	require.Equal(t, LimitRatio(120), tr.LimitRatio)
	again, err := Read(Needs{LimitRatio: true}, tr.Image(), start, 0)
	require.NoError(t, err)
	require.Equal(t, LimitRatio(120), again.LimitRatio)
	require.True(t, again.Limited(Free))

	again, err = Read(Needs{Peaks: true}, tr.Image(), start, 0)
	require.NoError(t, err)
	require.Equal(t, Unseen, again.LimitRatio, "nobody wants to know")
	require.False(t, again.Limited(120))
	require.Equal(t, New(Needs{Peaks: true}).Image(), again.Image())

	past := New(Needs{LimitRatio: true})
	past.Merge(tr)
	require.Equal(t, LimitRatio(120), past.LimitRatio)
	tr.Limited(100)
	past.Merge(tr)
	require.Equal(t, LimitRatio(120), past.LimitRatio, "its own is what was seen")
	tr.Adapt(Needs{Peaks: true})
	require.Equal(t, Unseen, tr.LimitRatio)
}
