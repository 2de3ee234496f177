package fleet

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/backtest/score"
)

// Plane is two figures of a kind of which one can be had for the other.
type Plane struct {
	Kind       amount.Kind
	Cost, Risk string // names of figures; Cost may also be Reserved
}

// Reserved is the cost of a plane that is the geometric mean over containers of
// their mean request.
const Reserved = "reserved"

// curve is what a plane asks of one candidate, container by container.
type curve struct{ cost, costWhole, risk, riskWhole []float64 }

// AtEqualRisk returns how much less a candidate costs than the best of some others
// with the same risk, as a fraction of theirs; less than 0 is more. The best is taken
// with hindsight: the lowest curve through the others in the plane, between two of them straight
// in the logarithm of the risk. Everything is on the containers that all have. It
// is false if the candidate's risk is beyond theirs: less than their least, or more
// than their greatest.
func AtEqualRisk(results []score.Result, other string, best []string, p Plane) (Figure, bool) {
	curves, n := curvesOf(results, append([]string{other}, best...), p)
	if n == 0 {
		return Figure{}, false
	}
	mean := &measure{}
	at := func(c *curve, of []int) (cost, risk float64) {
		cost, risk = mean.value(c.cost, c.costWhole, of), mean.value(c.risk, c.riskWhole, of)
		if p.Cost == Reserved {
			cost = math.Exp(cost)
		}
		return cost, math.Log(max(risk, 1e-9))
	}
	saved := func(of []int) float64 {
		cost, risk := at(&curves[0], of)
		var points [][2]float64
		for i := range best {
			c, r := at(&curves[i+1], of)
			points = append(points, [2]float64{r, c})
		}
		return 1 - cost/lowest(points, risk)
	}
	f := interval(p.Cost+" at equal "+p.Risk, n, saved)
	return f, !math.IsNaN(f.Value)
}

// lowest returns the cost at a risk on the lowest curve through points of risk and
// cost; NaN where there is none.
func lowest(points [][2]float64, risk float64) float64 {
	slices.SortFunc(points, func(a, b [2]float64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	var front [][2]float64
	for _, p := range points { // the more risk, the lower the cost
		if len(front) == 0 || p[1] < front[len(front)-1][1] {
			front = append(front, p)
		}
	}
	at, found := slices.BinarySearchFunc(front, risk, func(p [2]float64, r float64) int { return cmp.Compare(p[0], r) })
	switch {
	case found:
		return front[at][1]
	case at == 0 || at == len(front):
		return math.NaN()
	}
	before, after := front[at-1], front[at]
	return before[1] + (after[1]-before[1])*(risk-before[0])/(after[0]-before[0])
}

// curvesOf returns the numbers of the scored phases of some candidates, in their
// order, on the containers that all of them have.
func curvesOf(results []score.Result, candidates []string, p Plane) ([]curve, int) {
	type key struct{ dataset, workload, container string }
	tallies := map[key][]*score.Tally{}
	var keys []key
	for i := range results {
		r := &results[i]
		at := slices.Index(candidates, r.Candidate)
		if r.Kind != p.Kind || at < 0 {
			continue
		}
		k := key{r.Dataset, r.Workload, r.Container}
		if tallies[k] == nil {
			tallies[k] = make([]*score.Tally, len(candidates))
			keys = append(keys, k)
		}
		tallies[k][at] = &r.Scored
	}
	keys = slices.DeleteFunc(keys, func(k key) bool { return slices.Contains(tallies[k], nil) })
	curves := make([]curve, len(candidates))
	for i := range curves {
		c := &curves[i]
		for _, k := range keys {
			cost, costWhole := partOf(p.Cost, p.Kind, tallies[k][i])
			risk, riskWhole := partOf(p.Risk, p.Kind, tallies[k][i])
			c.cost, c.costWhole = append(c.cost, cost), append(c.costWhole, costWhole)
			c.risk, c.riskWhole = append(c.risk, risk), append(c.riskWhole, riskWhole)
		}
	}
	return curves, len(keys)
}

// partOf returns the parts of a figure by its name.
func partOf(name string, k amount.Kind, t *score.Tally) (part, whole float64) {
	if name == Reserved {
		if t.MeanRequest() <= 0 {
			return 0, 0
		}
		return math.Log(t.MeanRequest()), 1
	}
	at := slices.IndexFunc(measures, func(m measure) bool { return m.name == name && (m.both || m.kind == k) })
	return measures[at].of(t)
}
