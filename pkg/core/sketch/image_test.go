package sketch

import (
	"errors"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

func calm() *LoadShape {
	return NewLoadShape(resources.CPU, [2]time.Duration{48 * time.Hour, 4 * time.Hour}, [2]float64{0.75, 0.5}, true, false)
}

func trackedShape() *TrackedShape {
	return NewTrackedShape(NewLoadShape(resources.CPU, [2]time.Duration{12 * time.Hour, time.Hour}, [2]float64{0.6, 0.9}, false, true), 4000, 3200)
}

func ofCPU(s *LoadShape) [resources.Kinds]*LoadShape { return [resources.Kinds]*LoadShape{s} }

func allParts() Needs {
	return Needs{
		Tracked: trackedShape(), Peaks: true, Points: true, Mean: true, Hours: bothKinds, Pressure: true, Kills: true, LimitRatio: true, Declared: time.Hour, Start: 3 * time.Minute,
		Load: [resources.Kinds]*LoadShape{
			NewLoadShape(resources.CPU, [2]time.Duration{12 * time.Hour, time.Hour}, [2]float64{0.6, 0.9}, false, true).Throttling(),
			NewLoadShape(resources.Memory, [2]time.Duration{48 * time.Hour, time.Hour}, [2]float64{0.98, Average}, true, true),
		},
		Models: [resources.Kinds]*ModelShape{
			NewModelShape(resources.CPU, [2]float64{0.001, 0.005}, []float64{0, 0.1, 0.25}, Costs{Overrun: 20, Change: 0.02, Switch: 0.05, Learning: 0.01}),
			NewModelShape(resources.Memory, [2]float64{0.0003, 0.001}, []float64{0.1}, Costs{Overrun: 1000, Change: 0.02, Switch: 0.05, Learning: 0.001}),
		},
		Weighted: NewWeightedShape([resources.Kinds]float64{0.1, 100 << 20}, [resources.Kinds]float64{100, 104857600000}, 0.00001, [resources.Kinds]time.Duration{7 * 24 * time.Hour, 7 * 24 * time.Hour}),
	}
}

func fillRandomly(t *rapid.T, tr *Sketch, from time.Time) {
	now := from
	tr.SetLimitRatio(LimitRatio(rapid.Uint16().Draw(t, "limit ratio")))
	tr.SetDeclared(resources.Amount(rapid.IntRange(0, 1<<40).Draw(t, "declared")))
	for range rapid.IntRange(0, 150).Draw(t, "samples") {
		now = now.Add(rapid.SampledFrom([]time.Duration{time.Minute, 20 * time.Minute, 7 * time.Hour}).Draw(t, "step"))
		cpu := resources.Amount(rapid.IntRange(0, 60000).Draw(t, "cpu"))
		if rapid.IntRange(0, 5).Draw(t, "starts") == 5 {
			tr.ObserveStart("c", now, cpu, 0)
			continue
		}
		pod := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "pod")
		tr.ObserveUse(pod, now, resources.CPU, Usage{
			Amount: cpu, Limit: resources.Amount(rapid.SampledFrom([]int{0, 1000, 50000}).Draw(t, "limit")), Throttled: rapid.Float64Range(0, 1).Draw(t, "throttled"),
		})
		if rapid.IntRange(0, 5).Draw(t, "pressed") == 0 {
			tr.ObservePressure(now, cpu, rapid.Float64Range(0, 1).Draw(t, "share"))
		}
		tr.ObservePod(pod, now, resources.Memory, resources.Amount(rapid.IntRange(1, 1<<34).Draw(t, "memory")), 0)
		if rapid.IntRange(0, 50).Draw(t, "kill") == 0 {
			tr.ObserveKill(now, 1<<30, 1<<31)
			tr.SetTarget(resources.Memory, cpu)
		}
	}
}

func TestImage_RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := allParts()
		tr := New(needs)
		fillRandomly(t, tr, start)
		again, err := Read(needs, tr.Image(), start, 0)
		require.NoError(t, err)
		require.Equal(t, tr.Image(), again.Image())
		for range 10 {
			for k := range resources.Kind(resources.Kinds) {
				use, now := resources.Amount(rapid.IntRange(1, 1<<30).Draw(t, "use")), time.Unix(0, tr.Now).Add(13*time.Minute)
				throttled := Usage{Amount: use, Limit: 1 << 31, Throttled: 0.3}
				tr.ObserveUse("", now, k, throttled)
				again.ObserveUse("", now, k, throttled)
			}
		}
		require.Equal(t, tr.Image(), again.Image())
		require.Equal(t, tr.Load[0].Level(0, tr.Now), again.Load[0].Level(0, again.Now))
		require.Equal(t, tr.LimitRatio, again.LimitRatio)
		require.Equal(t, tr.Declared(), again.Declared())
	})
}

func TestRead_TruncatedImage(t *testing.T) {
	tr := New(allParts())
	for i := range 500 {
		tr.Observe(start.Add(time.Duration(i)*time.Hour), resources.Kind(i%2), resources.Amount(i*i*1000), 0)
	}
	image := tr.Image()
	for n := range len(image) {
		if got, err := Read(allParts(), image[:n], start, 0); err == nil {
			covered, _ := got.Coverage(resources.Memory)
			require.True(t, n == 0 || covered >= 0)
		}
	}
	_, err := Read(allParts(), image, start, time.Hour)
	require.ErrorIs(t, err, ErrFuture)
}

// An edited checkpoint may have an old last usage, but hours in the future.
func TestRead_RejectsFutureHours(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Hours)
	}{
		{name: "hour", change: func(h *Hours) { h.running += 50 * 365 * 24 }},
		{name: "minute", change: func(h *Hours) { h.minute += 50 * 365 * 24 * 60 }},
		{name: "none", change: func(*Hours) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for k := range resources.Kind(resources.Kinds) {
				tr := New(allParts())
				tr.Observe(start, k, 300, 0)
				tc.change(tr.Hours[k])
				_, err := Read(allParts(), tr.Image(), start, time.Hour)
				require.Equal(t, tc.name != "none", errors.Is(err, ErrFuture))
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	tr := New(allParts())
	for i := range 50 {
		tr.Observe(start.Add(time.Duration(i)*time.Hour), resources.Kind(i%2), resources.Amount(i*i*1000), 0)
	}
	f.Add(tr.Image())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, image []byte) {
		got, err := Read(allParts(), image, start, 0)
		if err != nil {
			return
		}
		got.Observe(start, resources.CPU, 5, 0)
		got.Observe(start, resources.Memory, 5, 0)
		_ = got.Load[0].Level(0, got.Now)
		_ = got.Points[0].Profile()
		_ = got.Weighted[1].Quantile(0.5)
		_ = got.Image()
	})
}

func TestMerge_MatchesSingleSketch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := allParts()
		whole, early, late := New(needs), New(needs), New(needs)
		now := start
		for i := range 200 {
			now = now.Add(17 * time.Minute)
			half := early
			if i >= 100 {
				half = late
			}
			for k := range resources.Kind(resources.Kinds) {
				use := resources.Amount(rapid.IntRange(100, 4000).Draw(t, "use"))
				pressed := k == resources.CPU && rapid.IntRange(0, 90).Draw(t, "pressed") == 0
				for _, tr := range []*Sketch{whole, half} {
					tr.Observe(now, k, use, 0)
					if pressed {
						tr.ObservePressure(now, use, 0.5)
					}
				}
			}
		}
		late.Merge(early)
		require.Equal(t, whole.Peaks.Daily(), late.Peaks.Daily())
		require.InEpsilon(t, whole.Peaks.ExcessOverMean()+1, late.Peaks.ExcessOverMean()+1, 1e-9)
		require.InEpsilon(t, whole.Load[0].Level(0, whole.Now), late.Load[0].Level(0, late.Now), 0.051)
		require.Equal(t, whole.Hours[0].Peak(), late.Hours[0].Peak())
		require.Equal(t, whole.PressureHours, late.PressureHours)
		require.InEpsilon(t, whole.Weighted[0].Quantile(0.9), late.Weighted[0].Quantile(0.9), 1e-9)
		require.Equal(t, *whole.Points[1].Profile(), *late.Points[1].Profile())
		a, _ := whole.Coverage(resources.CPU)
		b, _ := late.Coverage(resources.CPU)
		require.Equal(t, a, b)
	})
}

func TestAdapt_KeepsCommonParts(t *testing.T) {
	tr := New(Needs{Peaks: true, Load: ofCPU(calm())})
	for i := range 100 {
		tr.Observe(start.Add(time.Duration(i)*time.Minute), resources.CPU, 1000, 0)
		tr.Observe(start.Add(time.Duration(i)*time.Minute), resources.Memory, 1000, 0)
	}
	level := tr.Load[0].Level(0, tr.Now)
	tr.Adapt(Needs{Peaks: true, Load: ofCPU(calm())})
	require.Equal(t, level, tr.Load[0].Level(0, tr.Now), "the same, in another place")
	_, known := tr.Coverage(resources.CPU)
	require.True(t, known)
	tr.Adapt(Needs{Peaks: true, Load: ofCPU(NewLoadShape(resources.CPU, [2]time.Duration{time.Hour, 12 * time.Hour}, [2]float64{0.5, 0.5}, false, true))})
	require.Zero(t, tr.Load[0].Level(0, tr.Now), "it forgets at another speed")
	_, known = tr.Coverage(resources.CPU)
	require.False(t, known)
	covered, known := tr.Coverage(resources.Memory)
	require.True(t, known)
	require.Equal(t, 99*time.Minute, covered)
	tr.Adapt(Needs{})
	require.Nil(t, tr.Peaks)
}

// Two loads or the CPU hours add half a KiB, pressure adds a second set of hours.
func TestSketch_SizeIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name             string
		tracked          *TrackedShape
		shared, pressure bool
		use              int // the highest usage
		most             uintptr
	}{
		{name: "calm with flat usage", use: 1000, most: 1024 + 24},
		{name: "calm with wide usage", use: 1_000_000, most: 1024 + 24},
		{name: "mixed with flat usage", tracked: trackedShape(), use: 1000, most: 1536},
		{name: "mixed with wide usage", tracked: trackedShape(), use: 1_000_000, most: 1536},
		{name: "shared", shared: true, use: 1_000_000, most: 1536},
		{name: "shared with pressure", shared: true, pressure: true, use: 1_000_000, most: 2048},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := New(Needs{
				Peaks: true, LimitRatio: true, Declared: time.Hour, Start: time.Minute, Load: ofCPU(calm().Throttling()),
				Tracked: tc.tracked, Hours: [resources.Kinds]bool{tc.shared, false}, Pressure: tc.shared,
			})
			tr.SetLimitRatio(NoLimitRatio)
			tr.SetDeclared(1 << 40)
			for i := range 40000 {
				now := start.Add(time.Duration(i) * time.Minute)
				cpu := resources.Amount(math.Exp(float64(i*7919%10007) / 10007 * math.Log(float64(tc.use))))
				tr.Observe(now, resources.CPU, cpu, 2*resources.Amount(tc.use))
				if tc.pressure {
					tr.ObservePressure(now, cpu, 0.1)
				}
				tr.Observe(now, resources.Memory, resources.Amount(i*104729%1000003)<<14, 0)
			}
			const weight = unsafe.Sizeof([2]float32{})
			size := unsafe.Sizeof(*tr) + unsafe.Sizeof(*tr.Peaks) + unsafe.Sizeof(*tr.Load[0]) + maxLoadWeights*weight
			require.LessOrEqual(t, cap(tr.Load[0].uses.weights), maxLoadWeights)
			if tc.tracked != nil {
				size += unsafe.Sizeof(*tr.Tracked) + maxTrackedWeights*weight
				require.LessOrEqual(t, cap(tr.Tracked.uses.weights), maxTrackedWeights)
			}
			for _, h := range []*Hours{tr.Hours[resources.CPU], tr.Hours[resources.Memory], tr.PressureHours} {
				if h != nil {
					size += unsafe.Sizeof(*h)
				}
			}
			require.LessOrEqual(t, size, tc.most)
			require.LessOrEqual(t, len(tr.Image()), int(tc.most))
			t.Logf("%d bytes in memory, %d in a checkpoint", size, len(tr.Image()))
		})
	}
}

func TestRing_Merge(t *testing.T) {
	a, b := make([]uint16, 4), make([]uint16, 4)
	var at, bt int64
	for i, v := range []uint16{5, 9, 2, 7, 1, 3} {
		advanceRing(&at, int64(i), a)
		a[i%4] = v
		if i < 4 {
			advanceRing(&bt, int64(i), b)
			b[i%4] = 6
		}
	}
	mergeRings(&bt, b, at, a)
	require.Equal(t, int64(5), bt)
	require.Equal(t, []uint16{1, 3, 6, 7}, b)
}

// A part that is missing in allParts is not covered by the properties above.
func TestEverything_HasAllParts(t *testing.T) {
	tr := New(allParts())
	for _, p := range parts {
		require.True(t, p.needed(tr), "the part with the number %d", p.number)
	}
}
