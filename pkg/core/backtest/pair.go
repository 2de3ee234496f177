package backtest

import (
	"math"

	"loadline.dev/loadline/pkg/core/resources"
)

// Pair compares two candidates on the same containers. That shows far smaller
// differences than two intervals side by side.
type Pair struct {
	Base, Other string
	Kind        resources.Kind
	Containers  int
	Reserved    Figure   // geometric mean over containers of Other's mean request over Base's
	Differences []Figure // Other less Base, of the same figures as a summary
}

// Difference returns a difference by the name of its figure, and whether there is
// one.
func (p Pair) Difference(name string) (Figure, bool) { return named(p.Differences, name) }

// twin is one container under both candidates.
type twin struct{ base, other *Tally }

// Compare pairs the scored phases of two candidates for one kind. Containers that
// only one of them has do not count.
func Compare(results []Result, base, other string, k resources.Kind) Pair {
	p := Pair{Base: base, Other: other, Kind: k}
	type key struct{ dataset, workload, container string }
	first := map[key]*Tally{}
	var twins []twin
	for i := range results {
		if r := &results[i]; r.Candidate == base && r.Kind == k {
			first[key{r.Dataset, r.Workload, r.Container}] = &r.Scored
		}
	}
	for i := range results {
		r := &results[i]
		if t, ok := first[key{r.Dataset, r.Workload, r.Container}]; ok && r.Candidate == other && r.Kind == k {
			twins = append(twins, twin{t, &r.Scored})
		}
	}
	if p.Containers = len(twins); p.Containers == 0 {
		return p
	}
	logs, has := make([]float64, len(twins)), make([]float64, len(twins))
	for i, t := range twins {
		if t.base.MeanRequest() > 0 && t.other.MeanRequest() > 0 {
			logs[i], has[i] = math.Log(t.other.MeanRequest()/t.base.MeanRequest()), 1
		}
	}
	all := []Formula{{"reserved", func(of []int) float64 { return math.Exp(Ratio(logs, has, of)) }}}
	for i := range Measures {
		if m := &Measures[i]; m.Has(k) {
			all = append(all, m.difference(twins))
		}
	}
	figures := Intervals(len(twins), all)
	p.Reserved, p.Differences = figures[0], figures[1:]
	return p
}

// difference computes the measure for both of each pair and subtracts.
func (m *Measure) difference(twins []twin) Formula {
	var parts, wholes [2][]float64
	for _, t := range twins {
		for side, tally := range [2]*Tally{t.base, t.other} {
			part, whole := m.Of(tally)
			parts[side], wholes[side] = append(parts[side], part), append(wholes[side], whole)
		}
	}
	value := [2]func([]int) float64{m.over(parts[0], wholes[0]), m.over(parts[1], wholes[1])}
	return Formula{m.Name, func(of []int) float64 { return value[1](of) - value[0](of) }}
}
