package sketch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGrowth_DetectsGrowth(t *testing.T) {
	daily := func(h int) float64 { return 30 * math.Sin(float64(h)/24*2*math.Pi) }
	const never = 99
	for _, c := range []struct {
		name        string
		use         func(hour int) float64 // MiB
		noise       float64                // standard deviation per hour, as a fraction
		from, until int                    // days; always reported in between, never outside without noise
	}{
		{"steady", func(int) float64 { return 100 }, 0, never, 0},
		{"steady, with noise", func(int) float64 { return 100 }, 0.03, never, 0},
		{"a rhythm of a day", func(h int) float64 { return 100 + daily(h) }, 0.03, never, 0},
		{"a rhythm of a week", func(h int) float64 { return 100 + 60*math.Sin(float64(h)/24/7*2*math.Pi) }, 0.01, never, 0},
		{"a week that rises day by day, once it was seen", func(h int) float64 { return 100 + 10*float64((h/24+4)%7) }, 0.01, never, 0},
		{"a cache that fills in three days", func(h int) float64 { return 300 - 200*math.Exp(-float64(h)/24/3) }, 0.001, never, 0},
		{"a cache that fills day by day for five days, and stays", func(h int) float64 { return 100 + 30*min(float64(h)/24, 5) }, 0, never, 0},
		{"one step", func(h int) float64 { return 100 + 100*float64(min(h/(24*9), 1)) }, 0.01, never, 0},
		{"one step among small ones", func(h int) float64 { return 100 + float64(h)/48 + 20*float64(min(h/(24*10), 1)) }, 0, never, 0},
		{"growth of a hundredth a day", func(h int) float64 { return 100 + float64(h)/24 }, 0, never, 0},
		{"a leak of 6 MiB a day", func(h int) float64 { return 100 + float64(h)/4 }, 0, 7, 28},
		{"that, with noise", func(h int) float64 { return 100 + float64(h)/4 }, 0.03, 12, 28},
		{"that, over a rhythm of a day", func(h int) float64 { return 100 + float64(h)/4 + daily(h) }, 0.01, 8, 28},
		{"a leak that is restarted each day", func(h int) float64 { return 100 + 6*float64(h%24) }, 0.01, never, 0},
		{"a leak that is restarted every fifth day", func(h int) float64 { return 100 + float64(h%120)/4 }, 0, never, 0},
		{"a leak that is mended on the tenth day", func(h int) float64 { return 100 + float64(min(h, 240)-240*(h/240)/max(h/240, 1))/4 }, 0, 7, 10},
		{"growth that ends on the tenth day", func(h int) float64 { return 100 + float64(min(h, 240))/4 }, 0, 7, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				random, p := rand.New(rand.NewPCG(seed, 17)), &DailyPeaks{}
				for h := range 28 * 24 {
					p.Observe(at(time.Duration(h)*time.Hour), c.use(h)*(1+c.noise*random.NormFloat64())*(1<<20))
					told, day := p.Growth().Days > 0, float64(h)/24
					switch {
					case float64(c.from)+0.3 < day && day < float64(c.until):
						require.True(t, told, "seed %d, day %.2f", seed, day)
					case day < 6 || c.from == never || c.noise == 0 && day < float64(c.from) || day > float64(c.until)+2.6:
						require.False(t, told, "seed %d, day %.2f: %s", seed, day, p.Growth())
					}
				}
			}
		})
	}
}

func TestGrowth_ReportsRateAndDuration(t *testing.T) {
	p := &DailyPeaks{}
	for h := range 8*24 + 1 {
		p.Observe(at(time.Duration(h)*time.Hour), (100+float64(h)/24*31)*(1<<20))
	}
	g := p.Growth()
	require.Equal(t, 6, g.Days)
	require.InEpsilon(t, 31<<20, g.PerDay, 0.01)
	require.InEpsilon(t, (100+23.0/24*31+31)*(1<<20), g.From, 0.002)
	require.InEpsilon(t, g.From+6*31*(1<<20), g.To, 0.002)
	require.Equal(t, "memory grew by 31 MiB a day over 6 days, to 347 MiB", g.String())
	for limit, days := range map[float64]int{1 << 30: 22, g.To + 1: 1, g.To: 1, 1 << 20: 1, 1e300: math.MaxInt32} {
		require.Equal(t, days, g.Reaches(limit), fmt.Sprint(limit))
	}
}

func TestGrowth_UsesWholeDays(t *testing.T) {
	p := &DailyPeaks{}
	for h := range 20 * 24 {
		p.Observe(at(time.Duration(h)*time.Hour), (100+float64(h)/4)*(1<<20))
	}
	for back := range int64(slotsKept) {
		require.Equal(t, back+longSpan*perDay <= slotsKept, p.rises(p.running-back, longSpan, fallsOfLongSpan), "%d windows ago", back)
	}
}

func TestBytes_IsHumanReadable(t *testing.T) {
	for _, tc := range []struct {
		name  string
		want  string
		bytes float64
	}{
		{name: "one unit", want: "1 GiB", bytes: 1 << 30},
		{name: "below the next unit", want: "1000 MiB", bytes: 1000 << 20},
		{name: "fraction", want: "1.5 GiB", bytes: 1.501 * (1 << 30)},
		{name: "rounded to two digits", want: "120 MiB", bytes: 123.4 * (1 << 20)},
		{name: "below one KiB", want: "7 bytes", bytes: 7},
		{name: "KiB", want: "1 KiB", bytes: 1024},
		{name: "above the largest unit", want: "9100 GiB", bytes: 9123 * (1 << 30)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Bytes(tc.bytes, 2))
		})
	}
}
