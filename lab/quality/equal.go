package main

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// axes are two figures of a kind of which one can be had for the other.
type axes struct {
	kind       resources.Kind
	cost, risk string // names of figures; cost may also be reserved or reservedFleet
}

// curve is what a candidate came to, container by container.
type curve struct{ cost, risk series }

// atEqualRisk returns how much less a candidate costs than the best of some others
// with the same risk, as a fraction of theirs; less than 0 is more. The best is taken
// with hindsight: the lowest curve through the others in the plane, between two of them
// straight in the logarithm of the risk. It is false if the candidate's risk is beyond
// theirs: less than their least, or more than their greatest.
func atEqualRisk(results []backtest.Result, other string, best []string, p axes) (backtest.Figure, bool) {
	all := eachAtEqualRisk(results, []string{other}, best, p)
	return all[0], !math.IsNaN(all[0].Value)
}

// eachAtEqualRisk is atEqualRisk of several candidates, on the containers that all of them
// have. The value of one for which it is false is not a number.
func eachAtEqualRisk(results []backtest.Result, others, best []string, p axes) []backtest.Figure {
	curves, n := curvesOf(results, slices.Concat(others, best), p)
	if n == 0 {
		return slices.Repeat([]backtest.Figure{{Value: math.NaN()}}, len(others))
	}
	var front [][2]float64 // of one draw, for all candidates; the first formula makes it
	formulas := []backtest.Formula{{Value: func(of []int) float64 {
		front = lowest(curves[len(others):], of)
		return 0
	}}}
	for i := range others {
		formulas = append(formulas, backtest.Formula{Name: p.cost + " at equal " + p.risk, Value: func(of []int) float64 {
			own := curves[i].point(of)
			return 1 - own[1]/costAt(front, own[0])
		}})
	}
	return backtest.Intervals(n, formulas)[1:]
}

// atEqualCost returns how much less risk the best of some candidates has than a base
// with the same cost, as a fraction of the base's. Candidates are settings of one
// recipe, and the curve through them is as in atEqualRisk. It is false if the base
// costs less, or more, than all of them.
func atEqualCost(results []backtest.Result, base string, candidates []string, p axes) (backtest.Figure, bool) {
	return saved(results, append([]string{base}, candidates...), p, p.risk+" at equal "+p.cost, func(curves []curve, of []int) float64 {
		own := curves[0].point(of)
		return 1 - math.Exp(riskAt(lowest(curves[1:], of), own[1])-own[0])
	})
}

// less returns how much less of a figure a candidate has than another, as a fraction
// of the other's.
func less(results []backtest.Result, other, base string, k resources.Kind, figure string) (backtest.Figure, bool) {
	return saved(results, []string{other, base}, axes{k, figure, figure}, figure, func(curves []curve, of []int) float64 {
		return 1 - curves[0].cost.value(of)/curves[1].cost.value(of)
	})
}

// saved computes a figure from the curves of some candidates, on the containers that all
// of them have. It is false if there is nothing to compare with.
func saved(results []backtest.Result, candidates []string, p axes, name string, value func(curves []curve, of []int) float64) (backtest.Figure, bool) {
	curves, n := curvesOf(results, candidates, p)
	if n == 0 {
		return backtest.Figure{}, false
	}
	f := backtest.Intervals(n, []backtest.Formula{{Name: name, Value: func(of []int) float64 { return value(curves, of) }}})[0]
	return f, !math.IsNaN(f.Value)
}

// leastRisk stands for none at all, which has no logarithm.
const leastRisk = 1e-9

// point returns where a candidate is in the plane of two axes: the logarithm of its risk,
// and its cost.
func (c *curve) point(of []int) [2]float64 {
	return [2]float64{math.Log(max(c.risk.value(of), leastRisk)), c.cost.value(of)}
}

// lowest returns those of some candidates that no other is better than, from little
// risk and high cost to the contrary.
func lowest(curves []curve, of []int) [][2]float64 {
	var points [][2]float64
	for i := range curves {
		points = append(points, curves[i].point(of))
	}
	return lower(points)
}

func lower(points [][2]float64) [][2]float64 {
	slices.SortFunc(points, func(a, b [2]float64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	var front [][2]float64
	for _, p := range points { // the more risk, the lower the cost
		if len(front) == 0 || p[1] < front[len(front)-1][1] {
			front = append(front, p)
		}
	}
	return front
}

// costAt returns the cost at a risk on the straight lines through a front; NaN where
// there is none.
func costAt(front [][2]float64, risk float64) float64 {
	at := slices.IndexFunc(front, func(p [2]float64) bool { return p[0] >= risk })
	return between(front, at, 0, 1, risk)
}

// riskAt returns the risk at a cost, in the same way.
func riskAt(front [][2]float64, cost float64) float64 {
	at := slices.IndexFunc(front, func(p [2]float64) bool { return p[1] <= cost })
	return between(front, at, 1, 0, cost)
}

// between returns the coordinate to on the line that ends in a point, which is the
// first where the coordinate from is not before a value.
func between(front [][2]float64, at, from, to int, value float64) float64 {
	switch {
	case at >= 0 && front[at][from] == value:
		return front[at][to]
	case at <= 0:
		return math.NaN()
	}
	a, b := front[at-1], front[at]
	return a[to] + (b[to]-a[to])*(value-a[from])/(b[from]-a[from])
}

// curvesOf returns the numbers of the scored phases of some candidates, in their
// order, on the containers that all of them have.
func curvesOf(results []backtest.Result, candidates []string, p axes) ([]curve, int) {
	f := newFleet(where(results, func(r *backtest.Result) bool { return r.Kind == p.kind && slices.Contains(candidates, r.Candidate) }))
	curves := make([]curve, len(candidates))
	for i, name := range candidates {
		if len(f.tallies[name]) == 0 {
			return nil, 0
		}
		curves[i] = curve{measure(p.cost, p.kind, f.tallies[name]), measure(p.risk, p.kind, f.tallies[name])}
	}
	return curves, len(f.of)
}
