package recipe

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

const day = 24 * time.Hour

var (
	shape = usage.NewProfileShape(day, day)
)

// past is a profile with one CPU sample a minute, repeating the millicores, and one memory peak a
// day in bytes.
func past(samples int, millicores []float64, peaks ...float64) *usage.Profile {
	p := usage.NewProfile(shape)
	for i := range samples {
		p.AddCPU(millicores[i%len(millicores)]/1000, start.Add(time.Duration(i)*time.Minute))
	}
	for i, peak := range peaks {
		p.AddPeak(peak, start.Add(time.Duration(i)*day))
	}
	return &p
}

func recipe(t testing.TB, c Config) *Recipe {
	t.Helper()
	r := VPA(c)
	return &r
}

func TestVPA_Recommend(t *testing.T) {
	config := DefaultConfig()
	r := recipe(t, config)
	for _, tc := range []struct {
		name       string
		past       *usage.Profile
		containers int
		want       resources.Bounds
	}{
		{
			name: "a day of samples", past: past(1441, []float64{100, 120, 140, 400}, 300e6, 420e6), containers: 1,
			want: resources.Bounds{
				Lower:  resources.NewList(142, 510750973),
				Target: resources.NewList(476, 511772986),
				Upper:  resources.NewList(952, 1023545972),
			},
		},
		{
			name: "half an hour of low usage", past: past(31, []float64{5}, 20e6), containers: 2,
			want: resources.Bounds{
				Lower:  resources.NewList(12, 131072000),
				Target: resources.NewList(12, 131072000),
				Upper:  resources.NewList(539, 1155174902),
			},
		},
		{
			name: "half an hour of high usage", past: past(31, []float64{700, 900}, 600e6), containers: 2,
			want: resources.Bounds{
				Lower:  resources.NewList(740, 652561755),
				Target: resources.NewList(1038, 716711186),
				Upper:  resources.NewList(50862, 35118848114),
			},
		},
		{
			name: "single sample", past: past(1, []float64{1500}, 2e9), containers: 1,
			want: resources.Bounds{
				Lower:  resources.NewList(25, 262144000),
				Target: resources.NewList(1737, 2407501950),
				Upper:  resources.NewList(resources.Max, resources.Max),
			},
		},
		{
			name: "single CPU sample of zero", past: past(1, []float64{0}), containers: 1,
			want: resources.Bounds{
				Lower:  resources.NewList(25, 262144000),
				Target: resources.NewList(25, 262144000),
				Upper:  resources.NewList(resources.Max, 262144000),
			},
		},
		{
			name: "no samples", past: past(0, nil), containers: 3,
			want: resources.Bounds{
				Lower:  resources.NewList(8, 87381333),
				Target: resources.NewList(8, 87381333),
				Upper:  resources.NewList(8, 87381333),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, r.Recommend(Input{Profile: tc.past, Containers: tc.containers}).Bounds)
		})
	}
}

func TestVPA_MinimumIsDividedByContainers(t *testing.T) {
	r := VPA(DefaultConfig())
	require.Equal(t, resources.NewList(25, 262144000), r.Minimum(1))
	require.Equal(t, resources.NewList(12, 131072000), r.Minimum(2))
	require.Equal(t, resources.NewList(8, 87381333), r.Minimum(3))
}

func TestVPA_ExplainMatchesRecommend(t *testing.T) {
	r := recipe(t, DefaultConfig())
	rapid.Check(t, func(t *rapid.T) {
		p := past(rapid.IntRange(0, 50).Draw(t, "samples"), rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 9).Draw(t, "mcpu"),
			rapid.SliceOfN(rapid.Float64Range(0, 1e13), 0, 5).Draw(t, "peaks")...)
		in := Input{Profile: p, Containers: rapid.IntRange(1, 30).Draw(t, "containers")}
		b, e, minimum := r.Recommend(in).Bounds, r.Explain(in), r.Minimum(in.Containers)
		for k := range resources.Kind(resources.Kinds) {
			for _, c := range []struct {
				want resources.List
				got  []Value
			}{{b.Lower, e.Lower[k]}, {b.Target, e.Target[k]}, {b.Upper, e.Upper[k]}} {
				require.Equal(t, float64(c.want.Value(k)), c.got[len(c.got)-1].Amount)
			}
			require.LessOrEqual(t, b.Lower.Value(k), b.Target.Value(k))
			require.LessOrEqual(t, b.Target.Value(k), b.Upper.Value(k))
			require.GreaterOrEqual(t, b.Lower.Value(k), minimum.Value(k))
			require.LessOrEqual(t, b.Upper.Value(k), resources.Max)
		}
	})
}

func TestVPA_ExplainNamesSteps(t *testing.T) {
	config := DefaultConfig()
	config.Confidence[resources.CPU] = 12*time.Hour + 30*time.Minute
	config.PodMinCPU = 1000
	e := recipe(t, config).Explain(Input{Profile: past(1441, []float64{100, 120, 140, 400}), Containers: 1})
	require.Equal(t, []Value{{"cpu quantile 0.9", 414}, {"margin 0.15", 476}, {"floor", 1000}}, e.Target[resources.CPU])
	require.Equal(t, "confidence (1 + 1/c)^1, c in 12h30m", e.Upper[resources.CPU][2].Step)
	require.Equal(t, "confidence (1 + 0.001/c)^-2, c in 24h", e.Lower[resources.Memory][2].Step)
}

func TestMargin_SaturatesAtMax(t *testing.T) {
	require.Equal(t, float64(resources.Max), Margin(0.15).Apply(Subject{}, float64(resources.Max)))
	require.Equal(t, float64(resources.Max), Margin(1e300).Apply(Subject{}, 1))
	require.Equal(t, 11.0, Margin(0.15).Apply(Subject{}, 10))
}

func TestFloor_WithoutMinimum(t *testing.T) {
	require.Equal(t, 7.0, Floor(resources.CPU).Apply(Subject{}, 7))
}

func TestConfigValidate_ReportsAllProblems(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	c := DefaultConfig()
	c.Target[resources.Memory] = 90
	c.Lower[resources.CPU] = -0.1
	c.Upper[resources.CPU] = math.NaN()
	c.Confidence[resources.CPU] = 0
	c.Margin = -1
	c.PodMinMemory = math.Inf(1)
	err := c.Validate()
	for _, text := range []string{
		"memory percentile of the target is 90: must be from 0 to 1",
		"cpu percentile of the lower bound is -0.1",
		"cpu percentile of the upper bound is NaN",
		"cpu confidence interval is 0s: must be more than 0",
		"safety margin is -1",
		"least memory of a pod is +Inf",
	} {
		require.ErrorContains(t, err, text)
	}
}

func BenchmarkBounds(b *testing.B) {
	config := DefaultConfig()
	r := recipe(b, config)
	for _, n := range []int{1000, 10000, 100000} {
		profiles := make([]*usage.Profile, n)
		for i := range profiles {
			profiles[i] = past(20, []float64{float64(i % 4000), 100, 200, 50}, 3e8, float64(i)*1e5)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				for _, p := range profiles {
					r.Recommend(Input{Profile: p, Containers: 1})
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/container")
		})
	}
}
