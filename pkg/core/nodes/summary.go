package nodes

import (
	"math"
	"strconv"

	"loadline.dev/loadline/pkg/core/backtest"
)

// Row is one line of a comparison: a method, shared or not.
type Row struct {
	Name     string
	Shared   bool
	Upstream bool // one of those of which the best is taken with hindsight
}

// Comparison is all that is compared on the same fleets.
type Comparison struct {
	Rows  []Row
	First int // the row in which each pod has its first request
	Base  int // the row that the others are compared with
}

// Levels are the parts of the work not served at which nodes are compared, in rising order.
func Levels() []float64 { return []float64{1e-4, 1e-3, 1e-2} }

// Names of the figures. Those at a level end in the level in percent, such as "nodes_at_0.1";
// AtBase stands for what the base leaves undone as it is.
const (
	FigureNodes        = "nodes"
	FigureNodeHours    = "node_hours"
	FigureOfFirst      = "nodes_of_first"     // as a part of what first requests need
	FigureNotServed    = "not_served"         // of the work
	FigureWorst        = "worst_not_served"   // of the work of one pod
	FigureKills        = "kills_per_day"      // a pod-day, as all that follow
	FigurePressure     = "pressure_per_day"   // evictions by kubelets
	FigureMoves        = "moves_per_day"      // of pods that outgrew their node
	FigureEvictions    = "evictions_per_day"  // all, moves among them
	FigureChanges      = "changes_per_day"    // of requests, in place and by eviction
	FigureResizes      = "resizes_per_hour"   // in place, a pod-hour
	FigureMemoryFactor = "memory_factor"      // with which kills are equal
	figureAt           = "nodes_at_"          // at a level
	figureThanBest     = "less_than_best_at_" // nodes, than the best of upstream
	figureThanBase     = "less_than_base_at_" // nodes, than the base
	atBase             = "base"
)

// FigureAt returns the name of the figure of nodes at a level.
func FigureAt(level float64) string { return figureAt + percent(level) }

// FigureThanBest returns the name of the figure of how much less that is than the best of
// upstream needs, as a part of it; below 0 is more.
func FigureThanBest(level float64) string { return figureThanBest + percent(level) }

// FigureThanBase returns the same against the base.
func FigureThanBase(level float64) string { return figureThanBase + percent(level) }

// FigureNodesAtBase returns the name of the figure of how many nodes it takes to leave as much work
// undone as the base does as it is.
func FigureNodesAtBase() string { return figureAt + atBase }

// FigureAtBase returns the name of the figure of how much less than the base's nodes, as it
// is, it takes to leave as much work undone as the base does then.
func FigureAtBase() string { return figureThanBase + atBase }

func percent(level float64) string { return strconv.FormatFloat(level*100, 'g', 6, 64) }

// Summary is one row and its figures.
type Summary struct {
	Row
	Outcome Outcome // of all containers
	Figures []backtest.Figure
}

// Figure returns a figure by its name; one that there is not has no value.
func (s *Summary) Figure(name string) backtest.Figure {
	for _, f := range s.Figures {
		if f.Name == name {
			return f
		}
	}
	nan := math.NaN()
	return backtest.Figure{Name: name, Value: nan, Low: nan, High: nan}
}

// drawn is the outcomes of all rows on one fleet.
type drawn struct {
	*Comparison
	outcomes []Outcome
}

// Summarise returns the figures of all rows. The outcomes are those of each row on the fleet
// of all containers, and then on each fleet of drawn ones, which the intervals come from.
func (c *Comparison) Summarise(outcomes [][]Outcome) []Summary {
	all := make([]Summary, len(c.Rows))
	for row := range c.Rows {
		all[row] = Summary{Row: c.Rows[row], Outcome: outcomes[0][row]}
		all[row].Figures = c.overDraws(outcomes, func(d drawn) []backtest.Figure { return d.figures(row) })
	}
	return all
}

// Best returns what the best of upstream needs at each level, and to leave as much undone as the base
// does as it is, which may be another one at each of them and on each fleet.
func (c *Comparison) Best(outcomes [][]Outcome) []backtest.Figure {
	return c.overDraws(outcomes, func(d drawn) (figures []backtest.Figure) {
		for _, level := range Levels() {
			figures = append(figures, backtest.Figure{Name: FigureAt(level), Value: d.best(level)})
		}
		return append(figures, backtest.Figure{Name: FigureNodesAtBase(), Value: d.best(d.baseRisk())})
	})
}

// overDraws computes figures on the fleet of all containers, with intervals from the others.
func (c *Comparison) overDraws(outcomes [][]Outcome, of func(drawn) []backtest.Figure) []backtest.Figure {
	var figures []backtest.Figure
	var values [][]float64
	for i := range outcomes {
		for at, f := range of(drawn{c, outcomes[i]}) {
			if i == 0 {
				figures, values = append(figures, f), append(values, nil)
			} else {
				values[at] = append(values[at], f.Value)
			}
		}
	}
	for at := range figures {
		figures[at].Low, figures[at].High = backtest.Middle(values[at])
	}
	return figures
}

// figures returns the values of a row on one fleet.
func (d drawn) figures(row int) []backtest.Figure {
	o := &d.outcomes[row]
	s := &o.AsIs
	figures := []backtest.Figure{
		{Name: FigureNodes, Value: s.Nodes}, {Name: FigureNodeHours, Value: s.NodeHours},
		{Name: FigureOfFirst, Value: s.Nodes / d.outcomes[d.First].AsIs.Nodes},
		{Name: FigureNotServed, Value: s.NotServed()}, {Name: FigureWorst, Value: s.Worst},
		{Name: FigureKills, Value: s.PerPodDay(s.Kills)}, {Name: FigurePressure, Value: s.PerPodDay(s.Pressure)},
		{Name: FigureMoves, Value: s.PerPodDay(s.Moves)}, {Name: FigureEvictions, Value: s.PerPodDay(s.Evictions())},
		{Name: FigureChanges, Value: s.PerPodDay(s.Resizes + s.Evictions())}, {Name: FigureResizes, Value: s.PerPodDay(s.Resizes) / 24},
		{Name: FigureMemoryFactor, Value: o.MemoryFactor},
	}
	for _, level := range Levels() {
		own := Needed(o.Points, level)
		figures = append(figures, backtest.Figure{Name: FigureAt(level), Value: own},
			backtest.Figure{Name: FigureThanBest(level), Value: 1 - own/d.best(level)},
			backtest.Figure{Name: FigureThanBase(level), Value: 1 - own/Needed(d.outcomes[d.Base].Points, level)})
	}
	own := Needed(o.Points, d.baseRisk())
	return append(figures, backtest.Figure{Name: FigureNodesAtBase(), Value: own},
		backtest.Figure{Name: FigureAtBase(), Value: 1 - own/d.outcomes[d.Base].AsIs.Nodes})
}

// baseRisk returns the part of the work that the base leaves undone as it is, more than 0.
func (d drawn) baseRisk() float64 { return max(d.outcomes[d.Base].AsIs.NotServed(), leastRisk) }

// best returns the nodes of the best of upstream where a part of the work is not served; not a number if
// none comes to it.
func (d drawn) best(notServed float64) float64 {
	least := math.NaN()
	for i, row := range d.Rows {
		if n := Needed(d.outcomes[i].Points, notServed); row.Upstream && !math.IsNaN(n) && !(least <= n) {
			least = n
		}
	}
	return least
}
