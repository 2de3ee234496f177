package sketch

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestLimitRatioOf(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name           string
		request, limit resources.Amount
		want           LimitRatio
		ratio          float64 // 0 = none
	}{
		{name: "equal request and limit", request: 100 * mib, limit: 100 * mib, want: 100, ratio: 1},
		{name: "limit a fifth above the request", request: 100 * mib, limit: 120 * mib, want: 120, ratio: 1.2},
		{name: "limit a fifth above the request rounded to bytes", request: 104857601, limit: 125829119, want: 120, ratio: 1.2},
		{name: "ratio rounded down", request: 1000, limit: 1004, want: 100, ratio: 1},
		{name: "ratio rounded up", request: 1000, limit: 1006, want: 101, ratio: 1.01},
		{name: "request defaults to the limit", limit: 50 * mib, want: 100, ratio: 1},
		{name: "no limit", request: 100 * mib, want: NoLimitRatio},
		{name: "no request and no limit", want: NoLimitRatio},
		{name: "limit below the request", request: 100, limit: 50, want: 100, ratio: 1},
		{name: "largest ratio", request: 1, limit: math.MaxInt64, want: NoLimitRatio - 1, ratio: 655.34},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := LimitRatioOf(tc.request, tc.limit)
			require.Equal(t, tc.want, got)
			ratio, some := got.Ratio()
			require.Equal(t, tc.ratio != 0, some)
			if some {
				require.InDelta(t, tc.ratio, ratio, 1e-9)
			}
		})
	}
	_, some := UnknownRatio.Ratio()
	require.False(t, some)
}

func TestLimitRatio_Tighter(t *testing.T) {
	for _, tc := range []struct {
		name       string
		a, b, want LimitRatio
	}{
		{name: "both unknown", a: UnknownRatio, b: UnknownRatio, want: UnknownRatio},
		{name: "one unknown", a: UnknownRatio, b: 120, want: 120},
		{name: "unknown and no limit", a: UnknownRatio, b: NoLimitRatio, want: NoLimitRatio},
		{name: "two ratios", a: 100, b: 120, want: 100},
		{name: "ratio and no limit", a: 120, b: NoLimitRatio, want: 120},
		{name: "no limits", a: NoLimitRatio, b: NoLimitRatio, want: NoLimitRatio},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.a.Tighter(tc.b))
			require.Equal(t, tc.want, tc.b.Tighter(tc.a))
		})
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
