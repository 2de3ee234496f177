package sketch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func largeSketch(use resources.Amount, from time.Time) *Sketch {
	t := New(Needs{Load: ofCPU(calm()), Tracked: trackedShape()})
	for i := range 5 * 24 * 60 {
		t.Observe(from.Add(time.Duration(i)*time.Minute), cpu, use, 0)
	}
	return t
}

func TestTracked_LaterSketchDecidesSize(t *testing.T) {
	for use, want := range map[resources.Amount]bool{5000: true, 1000: false} {
		early, late := largeSketch(6000-use, start), largeSketch(use, start.Add(6*24*time.Hour))
		require.Equal(t, want, late.Tracked.Large())
		forwards, backwards := largeSketch(6000-use, start), largeSketch(use, start.Add(6*24*time.Hour))
		forwards.Merge(late)
		backwards.Merge(early)
		require.Equal(t, want, forwards.Tracked.Large())
		require.Equal(t, want, backwards.Tracked.Large())
	}
}

// The classification must also advance while history is loaded and nothing is recommended.
func TestTracked_ClassifiesEveryFiveMinutes(t *testing.T) {
	s := New(Needs{Load: ofCPU(calm()), Tracked: trackedShape()})
	s.Observe(start, cpu, 5000, 0)
	require.True(t, s.Tracked.Large(), "from the first use on")
	for i := range 3 {
		s.Observe(start.Add(time.Duration(i+1)*time.Minute), cpu, 10, 0)
	}
	require.True(t, s.Tracked.Large())
}

func TestAdapt_SecondLoadKeepsFirst(t *testing.T) {
	s := New(Needs{Load: ofCPU(calm().Sustained(15 * time.Minute))})
	for i := range 3 * 24 * 60 {
		s.Observe(start.Add(time.Duration(i)*time.Minute), cpu, resources.Amount(1000+100*(i/60%2*i%60/30)), 0)
	}
	s.Observe(start.Add(3*24*time.Hour), cpu, 9000, 0)
	level := s.Load[cpu].Level(0, s.Now)
	s.Adapt(Needs{Load: ofCPU(calm().Sustained(15 * time.Minute)), Tracked: trackedShape()})
	require.Equal(t, level, s.Load[cpu].Level(0, s.Now))
	_, known := s.Coverage(cpu)
	require.False(t, known)
	s.Observe(start.Add(3*24*time.Hour+time.Minute), cpu, 1000, 0)
	require.InEpsilon(t, level, s.Load[cpu].Level(0, s.Now), 0.001)
	second := s.Tracked
	s.Adapt(Needs{Load: ofCPU(calm()), Tracked: trackedShape()})
	require.Same(t, second, s.Tracked)
	s.Adapt(Needs{Load: ofCPU(calm())})
	require.Nil(t, s.Tracked)
}
