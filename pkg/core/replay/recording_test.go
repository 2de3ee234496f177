package replay

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

func newRecording(days int, cpu, memory func(minute int) float64) *Recording {
	r := &Recording{}
	for m := 0; m < days*1440; m += 5 {
		r.At = append(r.At, int64(m)*int64(time.Minute))
		r.Use[resources.CPU] = append(r.Use[resources.CPU], cpu(m))
		r.Use[resources.Memory] = append(r.Use[resources.Memory], memory(m))
	}
	return r
}

func flat(v float64) func(int) float64 { return func(int) float64 { return v } }

func TestRecording_SampleDurations(t *testing.T) {
	r := &Recording{At: []int64{0, 60, 120, 180, 1000, 1060}}
	nan := math.NaN()
	r.Use[resources.CPU] = []float64{1, nan, 1, 1, nan, 1}
	require.Equal(t, []int64{120, 0, 60, 180, 0, 60}, r.SampleDurations(resources.CPU), "up to the next recorded one, but not over the gap")
	require.Equal(t, time.Duration(60), r.Step())
	require.Equal(t, time.Duration(1120), r.Span())
	require.Zero(t, (&Recording{}).Span())
	r.Use[resources.Memory] = []float64{nan, nan, nan, nan, nan, nan}
	require.False(t, r.Has(resources.Memory))
}

func TestClassify(t *testing.T) {
	daily := func(m int) float64 { return 500 + 400*math.Sin(float64(m)/1440*2*math.Pi) }
	noise := func(m int) float64 { return float64(m * 7919 % 101) }
	for _, tc := range []struct {
		name      string
		want      Class
		recording *Recording
	}{
		{
			name: "growing memory", want: Growing,
			recording: newRecording(10, flat(500), func(m int) float64 { return float64(100<<20) * (1 + float64(m)/14400) }),
		},
		{name: "idle CPU", want: Idle, recording: newRecording(2, noiseUpTo(10), flat(1e9))},
		{
			name: "batch runs", want: Batch,
			recording: newRecording(2, func(m int) float64 { return 1000 * float64(1-min(m%1000/100, 1)) }, flat(1e9)),
		},
		{name: "daily pattern", want: Diurnal, recording: newRecording(5, daily, flat(1e9))},
		{
			name: "short bursts", want: Bursty,
			recording: newRecording(2, func(m int) float64 { return 150 + 900*float64(1-min(m%250/5, 1)) }, flat(1e9)),
		},
		{name: "steady CPU", want: Steady, recording: newRecording(2, func(m int) float64 { return 500 + noise(m) }, flat(1e9))},
		{
			name: "irregular CPU without memory", want: Other,
			recording: newRecording(2, func(m int) float64 { return 100 + 400*float64(m*7919%3) }, flat(math.NaN())),
		},
		{name: "memory only", want: Other, recording: newRecording(2, flat(math.NaN()), flat(1e9))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Classify(tc.recording))
		})
	}
	require.Len(t, Classes(), 7)
}

func noiseUpTo(most int) func(int) float64 {
	return func(m int) float64 { return float64(m * 7919 % most) }
}

func TestRecording_Clipped(t *testing.T) {
	require.True(t, newRecording(1, func(m int) float64 { return min(float64(m), 1000) }, flat(1)).Clipped(resources.CPU))
	require.False(t, newRecording(1, func(m int) float64 { return float64(m) }, flat(1)).Clipped(resources.CPU))
	require.False(t, newRecording(1, flat(0), flat(1)).Clipped(resources.CPU))
}

func TestNewHindsight(t *testing.T) {
	// The first day has a spike of an hour, the second day is flat.
	r := newRecording(2, func(m int) float64 { return 100 + 900*float64(1-min(m/60, 1)) }, func(m int) float64 { return 1000 + float64(m/1440)*1000 })
	end := r.At[0] + int64(r.Span())
	cpu := NewHindsight(r, resources.CPU, r.SampleDurations(resources.CPU), 0, end, 0.1)
	require.Equal(t, 100.0, cpu.Static, "an hour is less than a twentieth of two days")
	require.Equal(t, []float64{100, 100}, cpu.Daily)
	require.Equal(t, []float64{1000, 100}, cpu.Peaks[:2])
	require.Len(t, cpu.Peaks, 48)
	require.Zero(t, cpu.OverDaily)
	memory := NewHindsight(r, resources.Memory, r.SampleDurations(resources.Memory), 0, end, 0.1)
	require.InDelta(t, 2200, memory.Static, 1e-9)
	require.InDeltaSlice(t, []float64{1100, 2200}, memory.Daily, 1e-9)
	require.InDelta(t, (100+200)*86400, memory.OverDaily, 1e-3)
	require.InDelta(t, (1200+200)*86400, memory.OverStatic, 1e-3)
	none := NewHindsight(r, resources.CPU, r.SampleDurations(resources.CPU), end, end, 0.1)
	require.Zero(t, none.Static)
	require.Empty(t, none.Daily)
}

// The median is found without sorting if most steps are equal.
func TestRecording_StepIsMedian(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(rapid.SampledFrom([]int64{60, 60, 60, 61, 59, 300}), 1, 30).Draw(t, "steps")
		r := &Recording{At: []int64{1000}}
		for _, step := range steps {
			r.At = append(r.At, r.At[len(r.At)-1]+step)
		}
		slices.Sort(steps)
		require.Equal(t, time.Duration(steps[len(steps)/2]), r.Step())
	})
}

func TestStatic_MatchesHindsight(t *testing.T) {
	r := newRecording(3, func(m int) float64 { return float64(m * 7919 % 1000) }, func(m int) float64 { return float64(m * 104729 % 1000) })
	for k := range resources.Kind(resources.Kinds) {
		holds, from, to := r.SampleDurations(k), r.At[7], r.At[700]
		require.Equal(t, NewHindsight(r, k, holds, from, to, 0.1).Static, Static(r, k, holds, from, to, 0.1))
	}
}
