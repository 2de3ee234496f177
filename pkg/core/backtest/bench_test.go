package backtest

import (
	"math"
	"testing"
	"time"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// BenchmarkRun replays CPU and memory of a container with a sample every five minutes. A row holds
// one sample of each resource.
func BenchmarkRun(b *testing.B) {
	r := recording(30*24*time.Hour/5, resources.CPU, func(m int) float64 {
		return 500 + 400*math.Sin(float64(m)/300) + float64(m*7919%200)
	})
	for i := range r.At {
		r.At[i] = start.Add(time.Duration(i) * 5 * time.Minute).UnixNano()
		r.Use[resources.Memory][i] = gib * (1 + 0.5*math.Cos(float64(i)/777))
	}
	for _, name := range []string{"vpa", "loadline"} {
		b.Run(name, func(b *testing.B) {
			made, err := recipe.Parse(name)
			if err != nil {
				b.Fatal(err)
			}
			advice := Recipe(name, &made, usage.DefaultConfig())
			b.ReportAllocs()
			for b.Loop() {
				Run(r, defaultOptions(), advice)
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/float64(len(r.At)), "ns/row")
		})
	}
}
