package sketch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

// If an overrun costs twenty times as much as unused CPU, the optimal limit covers 20/21 of the
// time.
func TestModels_OptimalLimitIsQuantile(t *testing.T) {
	shape := NewModelShape(resources.CPU, [2]float64{0.001, 0.005}, []float64{0}, Costs{Overrun: 20, Learning: 0.01})
	m := newModels(shape)
	require.Zero(t, m.Limit())
	for i := range 20000 {
		use := 1000.0
		if i%10 == 0 {
			use = 3000 // a tenth of the time: too often to ignore
		}
		m.Observe(at(time.Duration(i)*time.Minute), use)
	}
	require.InEpsilon(t, 3000, m.Limit(), 0.03)
	m = newModels(shape)
	for i := range 20000 {
		use := 1000.0
		if i%100 == 0 {
			use = 3000
		}
		m.Observe(at(time.Duration(i)*time.Minute), use)
	}
	require.InEpsilon(t, 1000, m.Limit(), 0.03)
}

func TestModels_ChoosesCheapestModel(t *testing.T) {
	shape := NewModelShape(resources.CPU, [2]float64{0.001, 0.02}, []float64{0, 0.5}, Costs{Overrun: 20, Change: 0.01, Switch: 0.01, Learning: 0.05})
	m, now := newModels(shape), at(0)
	live := func(use float64, length time.Duration) {
		for end := now + int64(length); now < end; now += int64(time.Minute) {
			m.Observe(now, use)
		}
	}
	live(1000, 5*24*time.Hour)
	require.InEpsilon(t, 1000, m.Limit(), 0.03)
	live(2000, 5*time.Hour)
	require.InEpsilon(t, 2000, m.Limit(), 0.1, "a twentieth of the last hours is enough for the fast one")
	require.Equal(t, int8(1), m.chosen%2)
}

func TestModels_AvoidsUnprofitableChange(t *testing.T) {
	for change, moves := range map[float64]bool{0: true, 10: false} {
		m := newModels(NewModelShape(resources.CPU, [2]float64{0.01, 0.02}, []float64{0}, Costs{Overrun: 20, Change: change, Learning: 0.05}))
		for i := range 3000 {
			m.Observe(at(time.Duration(i)*time.Minute), 1000)
		}
		before := m.Limit()
		for i := range 3000 {
			m.Observe(at(time.Duration(3000+i)*time.Minute), 800)
		}
		require.Equal(t, moves, m.Limit() < before, change)
	}
}

func TestModels_MemoryUsesPeaks(t *testing.T) {
	m := newModels(NewModelShape(resources.Memory, [2]float64{0.0003, 0.001}, []float64{0}, Costs{Overrun: 1, Learning: 0.01}))
	for i := range 3000 {
		use := 100 << 20
		if i%5 == 2 {
			use = 200 << 20
		}
		m.Observe(at(time.Duration(i)*time.Minute), float64(use))
	}
	require.InEpsilon(t, 200<<20, m.Limit(), 0.06, "though it is a fifth of the samples")
}
