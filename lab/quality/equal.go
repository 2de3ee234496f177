package main

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// axes are two figures of a resource that trade off against each other.
type axes struct {
	kind       resources.Kind
	cost, risk string // names of figures, cost may also be reserved or reservedFleet
}

// curve is the cost and the risk of a candidate by container.
type curve struct{ cost, risk series }

// atEqualRisk returns the relative saving of a candidate against the best candidates at the same
// risk. A negative value is a higher cost. The best is chosen with hindsight: the Pareto front of
// cost and risk, interpolated linearly between points in the logarithm of the risk. It returns
// false if the front does not cover the candidate's risk.
func atEqualRisk(results []backtest.Result, other string, best []string, p axes) (backtest.Figure, bool) {
	all := eachAtEqualRisk(results, []string{other}, best, p)
	return all[0], !math.IsNaN(all[0].Value)
}

// eachAtEqualRisk is atEqualRisk for several candidates, on the containers that all of them have.
// The value is NaN where atEqualRisk returns false.
func eachAtEqualRisk(results []backtest.Result, others, best []string, p axes) []backtest.Figure {
	curves, n := curvesOf(results, slices.Concat(others, best), p)
	if n == 0 {
		return slices.Repeat([]backtest.Figure{{Value: math.NaN()}}, len(others))
	}
	var front [][2]float64 // of one draw for all candidates, computed by the first formula
	formulas := []backtest.Formula{{Value: func(of []int) float64 {
		front = curveFront(curves[len(others):], of)
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

// atEqualCost returns the relative reduction of risk of the best candidate against base at the same
// cost. Candidates are settings of one recipe, interpolated as in atEqualRisk. It returns false if
// the candidates do not cover the cost of base.
func atEqualCost(results []backtest.Result, base string, candidates []string, p axes) (backtest.Figure, bool) {
	return savingFigure(results, append([]string{base}, candidates...), p, p.risk+" at equal "+p.cost, func(curves []curve, of []int) float64 {
		own := curves[0].point(of)
		return 1 - math.Exp(riskAt(curveFront(curves[1:], of), own[1])-own[0])
	})
}

// relativeSaving returns how much lower a figure of a candidate is, as a fraction of the base's.
func relativeSaving(results []backtest.Result, other, base string, k resources.Kind, figure string) (backtest.Figure, bool) {
	return savingFigure(results, []string{other, base}, axes{k, figure, figure}, figure, func(curves []curve, of []int) float64 {
		return 1 - curves[0].cost.value(of)/curves[1].cost.value(of)
	})
}

// savingFigure computes a figure from curves on the containers that all candidates have. It returns
// false if there is nothing to compare with.
func savingFigure(results []backtest.Result, candidates []string, p axes, name string, value func(curves []curve, of []int) float64) (backtest.Figure, bool) {
	curves, n := curvesOf(results, candidates, p)
	if n == 0 {
		return backtest.Figure{}, false
	}
	f := backtest.Intervals(n, []backtest.Formula{{Name: name, Value: func(of []int) float64 { return value(curves, of) }}})[0]
	return f, !math.IsNaN(f.Value)
}

// minRisk replaces zero, which has no logarithm.
const minRisk = 1e-9

// point returns the logarithm of the risk, and the cost.
func (c *curve) point(of []int) [2]float64 {
	return [2]float64{math.Log(max(c.risk.value(of), minRisk)), c.cost.value(of)}
}

// curveFront returns the Pareto front of the candidates, in the order of increasing risk and
// decreasing cost.
func curveFront(curves []curve, of []int) [][2]float64 {
	var points [][2]float64
	for i := range curves {
		points = append(points, curves[i].point(of))
	}
	return paretoFront(points)
}

func paretoFront(points [][2]float64) [][2]float64 {
	slices.SortFunc(points, func(a, b [2]float64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	var front [][2]float64
	for _, p := range points { // by increasing risk, so the cost must decrease
		if len(front) == 0 || p[1] < front[len(front)-1][1] {
			front = append(front, p)
		}
	}
	return front
}

// costAt interpolates the cost at a risk, NaN outside the front.
func costAt(front [][2]float64, risk float64) float64 {
	at := slices.IndexFunc(front, func(p [2]float64) bool { return p[0] >= risk })
	return interpolate(front, at, 0, 1, risk)
}

// riskAt interpolates the risk at a cost, NaN outside the front.
func riskAt(front [][2]float64, cost float64) float64 {
	at := slices.IndexFunc(front, func(p [2]float64) bool { return p[1] <= cost })
	return interpolate(front, at, 1, 0, cost)
}

// interpolate returns coordinate to at a value of coordinate from. at is the index of the first
// point at or beyond the value.
func interpolate(front [][2]float64, at, from, to int, value float64) float64 {
	switch {
	case at >= 0 && front[at][from] == value:
		return front[at][to]
	case at <= 0:
		return math.NaN()
	}
	a, b := front[at-1], front[at]
	return a[to] + (b[to]-a[to])*(value-a[from])/(b[from]-a[from])
}

// curvesOf returns the scored phases of the candidates, in their order, on the containers that all
// of them have, and the number of containers.
func curvesOf(results []backtest.Result, candidates []string, p axes) ([]curve, int) {
	f := newFleet(filterResults(results, func(r *backtest.Result) bool { return r.Kind == p.kind && slices.Contains(candidates, r.Candidate) }))
	curves := make([]curve, len(candidates))
	for i, name := range candidates {
		if len(f.tallies[name]) == 0 {
			return nil, 0
		}
		curves[i] = curve{measure(p.cost, p.kind, f.tallies[name]), measure(p.risk, p.kind, f.tallies[name])}
	}
	return curves, len(f.containers)
}
