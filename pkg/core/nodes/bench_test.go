package nodes

import (
	"math"
	"testing"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// week returns 54 traces of a week with daily and hourly rhythms, and a fleet with 21 copies of
// each.
func week() (*Fleet, []*Trace) {
	const steps = 7 * 288
	var courses []*Trace
	for n := range 54 {
		sizes := make([]size, 0, steps)
		for i := range steps {
			use := 200 + 150*math.Sin(float64(i)/288*2*math.Pi+float64(n)) + 60*math.Sin(float64(i*(n+3)))
			sizes = append(sizes, size{
				from: i, use: [resources.Kinds]float32{float32(use), 0.5}, request: [resources.Kinds]float32{float32(500 + i/288*(n%7)), 1},
				base: float32(use), peak: 500,
			})
		}
		courses = append(courses, newTrace(steps, sizes...))
	}
	var of []int
	for i := range courses {
		of = append(of, i)
	}
	return NewFleet(courses, of, FleetOptions{Step: 5 * time.Minute, MaxDuration: 7 * day, Copies: 21, Seed: 1}), courses
}

func BenchmarkRun(b *testing.B) {
	f, courses := week()
	o := options(16000, 64)
	o.PlacementInterval, o.ConsolidationInterval = day, time.Hour
	for _, c := range []struct {
		name string
		rule *sharing.Rule
	}{{"alone", nil}, {"shared", &sharing.Rule{Pooling: sharing.RootSumSquares, EvictAbove: 0.85}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Run(f, courses, o, Variant{Rule: c.rule, Factor: UnitFactors()})
			}
		})
	}
}
