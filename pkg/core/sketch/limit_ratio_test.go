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
		{100 * mib, 0, NoLimitRatio, 0},
		{0, 0, NoLimitRatio, 0},
		{100, 50, 100, 1}, // rejected by the API server
		{1, math.MaxInt64, NoLimitRatio - 1, 655.34},
	} {
		got := LimitRatioOf(c.request, c.limit)
		require.Equal(t, c.want, got, "%d, %d", c.request, c.limit)
		ratio, some := got.Ratio()
		require.Equal(t, c.ratio != 0, some)
		if some {
			require.InDelta(t, c.ratio, ratio, 1e-9)
		}
	}
	_, some := UnknownRatio.Ratio()
	require.False(t, some)
}

func TestLimitRatio_Tighter(t *testing.T) {
	for _, c := range []struct{ a, b, want LimitRatio }{
		{UnknownRatio, UnknownRatio, UnknownRatio}, {UnknownRatio, 120, 120}, {UnknownRatio, NoLimitRatio, NoLimitRatio}, {100, 120, 100}, {120, NoLimitRatio, 120}, {NoLimitRatio, NoLimitRatio, NoLimitRatio},
	} {
		require.Equal(t, c.want, c.a.Tighter(c.b))
		require.Equal(t, c.want, c.b.Tighter(c.a))
	}
}

func TestSketch_KeepsLimitRatio(t *testing.T) {
	tr := New(Needs{LimitRatio: true})
	require.False(t, tr.SetLimitRatio(UnknownRatio))
	require.True(t, tr.SetLimitRatio(120))
	require.False(t, tr.SetLimitRatio(120))
	require.False(t, tr.SetLimitRatio(UnknownRatio))
	require.Equal(t, LimitRatio(120), tr.LimitRatio)
	again, err := Read(Needs{LimitRatio: true}, tr.Image(), start, 0)
	require.NoError(t, err)
	require.Equal(t, LimitRatio(120), again.LimitRatio)
	require.True(t, again.SetLimitRatio(NoLimitRatio))

	again, err = Read(Needs{Peaks: true}, tr.Image(), start, 0)
	require.NoError(t, err)
	require.Equal(t, UnknownRatio, again.LimitRatio, "nobody wants to know")
	require.False(t, again.SetLimitRatio(120))
	require.Equal(t, New(Needs{Peaks: true}).Image(), again.Image())

	past := New(Needs{LimitRatio: true})
	past.Merge(tr)
	require.Equal(t, LimitRatio(120), past.LimitRatio)
	tr.SetLimitRatio(100)
	past.Merge(tr)
	require.Equal(t, LimitRatio(120), past.LimitRatio, "its own is what was seen")
	tr.Adapt(Needs{Peaks: true})
	require.Equal(t, UnknownRatio, tr.LimitRatio)
}
