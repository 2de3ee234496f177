package backtest

import (
	"cmp"
	"math"
	"slices"
)

// Formula is a figure as a function of the numbers of containers, of which some may
// be there several times.
type Formula struct {
	Name  string
	Value func(of []int) float64
}

// Intervals computes figures over all of n containers, and over draws of them, which
// are the same for all figures.
func Intervals(n int, all []Formula) []Figure {
	of := make([]int, n)
	for i := range of {
		of[i] = i
	}
	figures, drawn := make([]Figure, len(all)), make([]float64, len(all)*Draws)
	for i, f := range all {
		figures[i] = Figure{Name: f.Name, Value: f.Value(of)}
	}
	draw := Dice(Seed)
	for d := range Draws {
		for i := range of {
			of[i] = draw.Below(n)
		}
		for i, f := range all {
			drawn[i*Draws+d] = f.Value(of)
		}
	}
	for i := range figures {
		figures[i].Low, figures[i].High = Middle(drawn[i*Draws : (i+1)*Draws])
	}
	return figures
}

// Middle returns what 95 % of the values of draws lie within. Draws without a value lie
// outside, on either side; if one in twenty has none, it is not known.
func Middle(values []float64) (low, high float64) {
	slices.Sort(values) // NaN comes first
	has := slices.IndexFunc(values, func(v float64) bool { return !math.IsNaN(v) })
	if has < 0 || has*20 >= len(values) {
		return math.NaN(), math.NaN()
	}
	outside := max(len(values)*25/1000-has, 0)
	values = values[has:]
	return values[outside], values[len(values)-1-outside]
}

// over returns the measure over containers, as a function of their numbers.
func (m *Measure) over(parts, wholes []float64) func(of []int) float64 {
	if m.quantile > 0 {
		return quantileOf(m.quantile, parts, wholes)
	}
	return func(of []int) float64 { return Ratio(parts, wholes, of) }
}

// quantileOf returns a quantile of the ratios of containers. The ratios are put in
// order once, and not for each draw.
func quantileOf(q float64, parts, wholes []float64) func(of []int) float64 {
	ratios, order := make([]float64, len(parts)), make([]int, 0, len(parts))
	for i, whole := range wholes {
		if whole != 0 {
			ratios[i], order = parts[i]/whole, append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(ratios[a], ratios[b]), a-b) })
	times, sorted := make([]int, len(parts)), make([]float64, 0, len(parts))
	return func(of []int) float64 {
		clear(times)
		for _, i := range of {
			times[i]++
		}
		sorted = sorted[:0]
		for _, i := range order {
			for range times[i] {
				sorted = append(sorted, ratios[i])
			}
		}
		return QuantileSorted(sorted, q)
	}
}
