package backtest

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// Plane is two figures of a kind of which one can be had for the other.
type Plane struct {
	Kind       resources.Kind
	Cost, Risk string // names of figures; Cost may also be Reserved or ReservedFleet
}

// Costs of a plane that no summary has, because they mean something only beside
// those of another candidate.
const (
	Reserved      = "reserved"       // geometric mean over containers of their mean request
	ReservedFleet = "reserved_fleet" // mean request of all together
)

// curve is what a plane asks of one candidate, container by container.
type curve struct{ cost, costWhole, risk, riskWhole []float64 }

// AtEqualRisk returns how much less a candidate costs than the best of some others
// with the same risk, as a fraction of theirs; less than 0 is more. The best is taken
// with hindsight: the lowest curve through the others in the plane, between two of them straight
// in the logarithm of the risk. Everything is on the containers that all have. It
// is false if the candidate's risk is beyond theirs: less than their least, or more
// than their greatest.
func AtEqualRisk(results []Result, other string, best []string, p Plane) (Figure, bool) {
	curves, n := curvesOf(results, append([]string{other}, best...), p)
	if n == 0 {
		return Figure{}, false
	}
	saved := func(of []int) float64 {
		own := curves[0].point(p, of)
		return 1 - own[1]/costAt(front(p, curves[1:], of), own[0])
	}
	f := interval(p.Cost+" at equal "+p.Risk, n, saved)
	return f, !math.IsNaN(f.Value)
}

// AtEqualCost returns how much less risk the best of some candidates has than a base
// with the same cost, as a fraction of the base's. Candidates are settings of one
// recipe, and the curve through them is as in AtEqualRisk. It is false if the base
// costs less, or more, than all of them.
func AtEqualCost(results []Result, base string, candidates []string, p Plane) (Figure, bool) {
	curves, n := curvesOf(results, append([]string{base}, candidates...), p)
	if n == 0 {
		return Figure{}, false
	}
	saved := func(of []int) float64 {
		own := curves[0].point(p, of)
		return 1 - math.Exp(riskAt(front(p, curves[1:], of), own[1])-own[0])
	}
	f := interval(p.Risk+" at equal "+p.Cost, n, saved)
	return f, !math.IsNaN(f.Value)
}

// Less returns how much less of a figure a candidate has than another, as a fraction
// of the other's, on the containers that both have.
func Less(results []Result, other, base string, k resources.Kind, figure string) (Figure, bool) {
	curves, n := curvesOf(results, []string{other, base}, Plane{Kind: k, Cost: figure, Risk: figure})
	if n == 0 {
		return Figure{}, false
	}
	mean := &measure{}
	f := interval(figure, n, func(of []int) float64 {
		return 1 - mean.value(curves[0].cost, curves[0].costWhole, of)/mean.value(curves[1].cost, curves[1].costWhole, of)
	})
	return f, !math.IsNaN(f.Value)
}

// leastRisk stands for none at all, which has no logarithm.
const leastRisk = 1e-9

// point returns where a candidate is in a plane: the logarithm of its risk, and its
// cost.
func (c *curve) point(p Plane, of []int) [2]float64 {
	mean := &measure{}
	cost, risk := mean.value(c.cost, c.costWhole, of), mean.value(c.risk, c.riskWhole, of)
	if p.Cost == Reserved {
		cost = math.Exp(cost)
	}
	return [2]float64{math.Log(max(risk, leastRisk)), cost}
}

// front returns those of some candidates that no other is better than, from little
// risk and high cost to the contrary.
func front(p Plane, curves []curve, of []int) [][2]float64 {
	var points [][2]float64
	for i := range curves {
		points = append(points, curves[i].point(p, of))
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
func curvesOf(results []Result, candidates []string, p Plane) ([]curve, int) {
	type key struct{ dataset, workload, container string }
	tallies := map[key][]*Tally{}
	var keys []key
	for i := range results {
		r := &results[i]
		at := slices.Index(candidates, r.Candidate)
		if r.Kind != p.Kind || at < 0 {
			continue
		}
		k := key{r.Dataset, r.Workload, r.Container}
		if tallies[k] == nil {
			tallies[k] = make([]*Tally, len(candidates))
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
func partOf(name string, k resources.Kind, t *Tally) (part, whole float64) {
	switch {
	case name == ReservedFleet:
		return t.Reserved, t.Seconds
	case name == Reserved && t.MeanRequest() <= 0:
		return 0, 0
	case name == Reserved:
		return math.Log(t.MeanRequest()), 1
	}
	at := slices.IndexFunc(measures, func(m measure) bool { return m.name == name && (m.both || m.kind == k) })
	return measures[at].of(t)
}
