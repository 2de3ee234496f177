package sketch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestScale_RoundAmountsAreExact(t *testing.T) {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	for _, tc := range []struct {
		name       string
		kind       resources.Kind
		unit, most float64
	}{
		{"tenths of a millicore up to half a core", resources.CPU, 0.1, 500},
		{"millicores up to 20 cores", resources.CPU, 1, 20_000},
		{"10 millicores up to 100 cores", resources.CPU, 10, 100_000},
		{"tenths of a core up to 1,000 cores", resources.CPU, 100, 1_000_000},
		{"KiB", resources.Memory, kib, mib},
		{"MiB up to 16 GiB", resources.Memory, mib, 16 * gib},
		{"128 MiB up to 256 GiB", resources.Memory, 128 * mib, 256 * gib},
		{"GiB up to 1 TiB", resources.Memory, gib, 1024 * gib},
		{"MB up to 10 GB", resources.Memory, 1e6, 10e9},
		{"GB up to 1 TB", resources.Memory, 1e9, 1e12},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &scales[tc.kind]
			for n := 1.0; n*tc.unit < tc.most; n++ {
				amount := n * tc.unit
				require.InEpsilon(t, amount, s.decode(s.encode(amount)), 1e-12)
			}
		})
	}
}

func TestScale_RoundsUpByAThousandth(t *testing.T) {
	for k := range resources.Kind(resources.Kinds) {
		s := &scales[k]
		require.Less(t, len(s.amounts), 1<<16, "all have a code")
		require.Equal(t, s.amounts[0], s.decode(s.encode(0)), "nothing is something: it was observed")
		require.Zero(t, s.decode(0))
		require.Equal(t, s.amounts[len(s.amounts)-1], s.decode(s.encode(1e300)))
		rapid.Check(t, func(t *rapid.T) {
			amount := rapid.Float64Range(s.amounts[0], s.amounts[len(s.amounts)-1]).Draw(t, "amount")
			got := s.decode(s.encode(amount))
			require.GreaterOrEqual(t, got, amount*(1-1e-8))
			require.LessOrEqual(t, got, max(amount*codeStep, amount+s.amounts[0])*(1+1e-8))
		})
	}
}

func TestRead_OlderImagesKeepPointsAndHours(t *testing.T) {
	for _, name := range []string{"everything-in-thousandths", "cruisekube-in-thousandths", "shared-in-thousandths"} {
		t.Run(name, func(t *testing.T) {
			needs := map[string]Needs{
				"everything-in-thousandths": allParts(), "cruisekube-in-thousandths": {Hours: bothKinds, Pressure: true, Kills: true}, "shared-in-thousandths": sharedNeeds(),
			}[name]
			old, err := Read(needs, golden(t, name), start, 0)
			require.NoError(t, err)
			want := fullLife(needs)
			for k := range resources.Kind(resources.Kinds) {
				_, known := old.Coverage(k)
				require.True(t, known, "the history of %s does not begin anew", k)
				if needs.Points {
					require.InEpsilon(t, want.Points[k].Profile().Overall.P95, old.Points[k].Profile().Overall.P95, 0.003)
				}
				if needs.Hours[k] {
					require.InEpsilon(t, want.Hours[k].Highest(), old.Hours[k].Highest(), 0.003)
				}
			}
			if needs.Pressure {
				require.InEpsilon(t, want.PressureHours.Highest(), old.PressureHours.Highest(), 0.003)
			}
		})
	}
}

// The codes of these images are powers of codeStep.
func TestRead_OlderImagesKeepPeaksAndLoads(t *testing.T) {
	for name, needs := range map[string]Needs{
		"everything-peaks-in-thousandths": allParts(),
		"loadline-in-thousandths":         {Peaks: true, LimitRatio: true, Declared: 100 * time.Hour, Load: ofCPU(calm())},
		"shared-peaks-in-thousandths":     sharedNeeds(),
	} {
		t.Run(name, func(t *testing.T) {
			old, err := Read(needs, golden(t, name), start, 0)
			require.NoError(t, err)
			want := fullLife(needs)
			for k := range resources.Kind(resources.Kinds) {
				if _, had := want.Coverage(k); had {
					_, known := old.Coverage(k)
					require.True(t, known, "the history of %s does not begin anew", k)
				}
				if l := want.Load[k]; l != nil {
					require.InDelta(t, l.Hour(), old.Load[k].Hour(), 0.003*l.Hour())
				}
			}
			require.InEpsilon(t, want.Peaks.Highest(days), old.Peaks.Highest(days), 0.003)
			require.Equal(t, len(want.Peaks.Weekly()), len(old.Peaks.Weekly()))
			require.InDelta(t, want.Declared(), old.Declared(), 0.003*want.Declared())
			require.InDelta(t, want.ThrottledDemand(), old.ThrottledDemand(), 0.003*want.ThrottledDemand())
			require.Equal(t, want.LimitRatio, old.LimitRatio)
			again, err := Read(needs, old.Image(), start, 0)
			require.NoError(t, err)
			require.Equal(t, old, again)
		})
	}
}

func TestPeaks_AreExact(t *testing.T) {
	s := New(Needs{Peaks: true, Declared: time.Hour})
	s.Observe(start, resources.Memory, 700e6, 0)
	s.SetDeclared(300 << 20)
	require.Equal(t, 700e6, s.Peaks.Highest(days))
	require.Equal(t, 700e6, s.Peaks.CurrentPeak())
	require.Equal(t, float64(300<<20), s.Declared())
}

func TestPoints_SteadyUsageIsExact(t *testing.T) {
	for k, use := range map[resources.Kind]resources.Amount{resources.CPU: 200, resources.Memory: 1e9} {
		s := New(Needs{Points: true, Hours: bothKinds})
		for i := range 60 {
			s.ObservePod("a", start.Add(time.Duration(i)*time.Minute), k, use, 0)
		}
		require.Equal(t, float64(use), s.Points[k].Profile().Overall.P95, "%s", k)
		require.Equal(t, float64(use), s.Hours[k].Peak(), "%s", k)
		require.Equal(t, float64(use), s.Hours[k].Recent(10, 0.75), "%s", k)
	}
}
