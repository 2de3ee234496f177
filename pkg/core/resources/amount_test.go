package resources

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFromFloat_Clamps(t *testing.T) {
	for _, c := range []struct {
		in   float64
		want Amount
	}{
		{0, 0}, {0.999, 0}, {1.999, 1}, {-5, 0}, {math.NaN(), 0}, {math.Inf(1), Max}, {math.Inf(-1), 0}, {1e14, Max}, {1e300, Max},
	} {
		require.Equal(t, c.want, FromFloat(c.in), "FromFloat(%v)", c.in)
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
	for _, c := range []struct {
		a, num, den, down, up Amount
		ok                    bool
	}{
		{300, 166, 100, 498, 498, true},
		{150, 363, 100, 544, 545, true},
		{0, 5, 3, 0, 0, true},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, true},
		{math.MaxInt64, 2, 1, math.MaxInt64, math.MaxInt64, false},
		{math.MaxInt64, math.MaxInt64, 1, math.MaxInt64, math.MaxInt64, false},
	} {
		down, ok := c.a.Proportion(c.num, c.den)
		require.Equal(t, c.down, down)
		require.Equal(t, c.ok, ok)
		up, ok := c.a.ProportionUp(c.num, c.den)
		require.Equal(t, c.up, up)
		require.Equal(t, c.ok, ok)
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
