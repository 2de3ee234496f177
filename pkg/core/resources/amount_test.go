package resources

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFromFloat_Clamps(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   float64
		want Amount
	}{
		{name: "zero", in: 0, want: 0},
		{name: "below one", in: 0.999, want: 0},
		{name: "fraction is cut", in: 1.999, want: 1},
		{name: "negative", in: -5, want: 0},
		{name: "not a number", in: math.NaN(), want: 0},
		{name: "infinity", in: math.Inf(1), want: Max},
		{name: "negative infinity", in: math.Inf(-1), want: 0},
		{name: "maximum", in: 1e14, want: Max},
		{name: "far above the maximum", in: 1e300, want: Max},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, FromFloat(tc.in))
		})
	}
}

func TestAmount_AddSaturates(t *testing.T) {
	require.Equal(t, Amount(3), Amount(1).Add(2))
	require.Equal(t, Amount(1), Amount(1).Add(0))
	require.Equal(t, Amount(-1), Amount(1).Add(-2))
	require.Equal(t, Amount(math.MaxInt64), Amount(math.MaxInt64-1).Add(2))
	require.Equal(t, Amount(math.MinInt64), Amount(math.MinInt64+1).Add(-2))
}

func TestAmount_Proportion(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		a, num, den, down, up Amount
		ok                    bool
	}{
		{name: "exact quotient", a: 300, num: 166, den: 100, down: 498, up: 498, ok: true},
		{name: "rounded quotient", a: 150, num: 363, den: 100, down: 544, up: 545, ok: true},
		{name: "zero amount", num: 5, den: 3, ok: true},
		{
			name: "no overflow of the intermediate product", a: math.MaxInt64, num: math.MaxInt64, den: math.MaxInt64,
			down: math.MaxInt64, up: math.MaxInt64, ok: true,
		},
		{name: "doubled maximum saturates", a: math.MaxInt64, num: 2, den: 1, down: math.MaxInt64, up: math.MaxInt64},
		{name: "squared maximum saturates", a: math.MaxInt64, num: math.MaxInt64, den: 1, down: math.MaxInt64, up: math.MaxInt64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			down, ok := tc.a.Proportion(tc.num, tc.den)
			require.Equal(t, tc.down, down)
			require.Equal(t, tc.ok, ok)
			up, ok := tc.a.ProportionUp(tc.num, tc.den)
			require.Equal(t, tc.up, up)
			require.Equal(t, tc.ok, ok)
		})
	}
}

func TestAmount_ProportionMatchesDivision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Range(0, math.MaxInt32).Draw(t, "a")
		num := rapid.Int64Range(0, math.MaxInt32).Draw(t, "num")
		den := rapid.Int64Range(1, math.MaxInt32).Draw(t, "den")
		got, ok := Amount(a).Proportion(Amount(num), Amount(den))
		require.True(t, ok)
		require.Equal(t, Amount(a*num/den), got)
	})
}

func TestAmount_RoundUp(t *testing.T) {
	require.Equal(t, Amount(200), Amount(101).RoundUp(100))
	require.Equal(t, Amount(100), Amount(100).RoundUp(100))
	require.Equal(t, Amount(251<<20), Amount(262144001).RoundUp(1<<20))
	require.Equal(t, Amount(0), Amount(0).RoundUp(100))
	require.Equal(t, Amount(7), Amount(7).RoundUp(0))
	require.Equal(t, Amount(7), Amount(7).RoundUp(-3))
}

func TestList(t *testing.T) {
	var none List
	require.True(t, none.Empty())
	r := none.With(CPU, 0)
	require.False(t, r.Empty(), "an amount of 0 is an amount")
	got, ok := r.Get(CPU)
	require.True(t, ok)
	require.Zero(t, got)
	require.False(t, r.Has(Memory))
	require.Equal(t, none, r.Without(CPU))
	require.Equal(t, NewList(1, 2), none.With(Memory, 2).With(CPU, 1))
	require.Equal(t, Amount(2), NewList(1, 2).Value(Memory))
	require.Equal(t, "cpu memory", CPU.String()+" "+Memory.String())
}
