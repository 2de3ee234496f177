package rollout

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestSavings_SeparatesDecreaseAndIncrease(t *testing.T) {
	var s Savings
	s = s.Add(resources.NewList(2000, 4<<30), resources.NewList(1000, 6<<30), 3)
	s = s.Add(resources.NewList(100, 1<<30), resources.NewList(400, 1<<30), 2)
	require.Equal(t, resources.NewList(6200, 14<<30), s.Requested)
	require.Equal(t, resources.List{}.With(resources.CPU, 3000), s.Less)
	require.Equal(t, resources.NewList(600, 6<<30), s.More)
}

func TestSavings_IgnoresMissingAmounts(t *testing.T) {
	var s Savings
	s = s.Add(resources.List{}.With(resources.CPU, 500), resources.List{}.With(resources.Memory, 1), 4)
	require.Equal(t, Savings{}, s)
	s = s.Add(resources.NewList(-5, 1), resources.NewList(-5, 1), 4)
	require.Zero(t, s.Requested.Value(resources.CPU), "no such request")
	s = s.Add(resources.NewList(500, 1), resources.NewList(100, 1), 0)
	require.Zero(t, s.Less.Value(resources.CPU), "no pods")
	s = s.Add(resources.NewList(math.MaxInt64, 1), resources.NewList(1, 1), math.MaxInt32)
	require.Equal(t, resources.Amount(math.MaxInt64), s.Less.Value(resources.CPU), "no overflow")
}

func TestPrices_Monthly(t *testing.T) {
	require.InDelta(t, 22.63, DefaultPrices.Monthly(resources.NewList(1000, 0)), 1e-9)
	require.InDelta(t, 5.84, DefaultPrices.Monthly(resources.NewList(0, 2<<30)), 1e-9)
	require.InDelta(t, 730*(2*10+0.5*1), Prices{Core: 10, GiB: 1}.Monthly(resources.NewList(2000, 1<<29)), 1e-9)
}
