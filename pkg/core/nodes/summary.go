package nodes

import (
	"math"
	"strconv"

	"loadline.dev/loadline/pkg/core/backtest"
)

// Row is one method of a comparison, with or without sharing.
type Row struct {
	Name     string
	Shared   bool
	Upstream bool // candidate for the best upstream method in hindsight
}

// Comparison is a set of rows with the same fleets.
type Comparison struct {
	Rows       []Row
	InitialRow int // row with the initial requests
	BaseRow    int // row for comparison
}

// Levels returns the unserved shares of work at which nodes are compared, in ascending order.
func Levels() []float64 { return []float64{1e-4, 1e-3, 1e-2} }

// Figure names. Names at a level end in the level in percent, such as "nodes_at_0.1", or in atBase
// for the unserved work of the base row.
const (
	FigureNodes        = "nodes"
	FigureNodeHours    = "node_hours"
	FigureOfFirst      = "nodes_of_first"     // nodes relative to the initial requests
	FigureNotServed    = "not_served"         // share of the work
	FigureWorst        = "worst_not_served"   // share of the work of one pod
	FigureKills        = "kills_per_day"      // per pod-day, like the following ones
	FigurePressure     = "pressure_per_day"   // node-pressure evictions
	FigureMoves        = "moves_per_day"      // of pods that outgrew their node
	FigureEvictions    = "evictions_per_day"  // all, including moves
	FigureChanges      = "changes_per_day"    // of requests, in place and by eviction
	FigureResizes      = "resizes_per_hour"   // in place, per pod-hour
	FigureMemoryFactor = "memory_factor"      // factor for equal memory failures
	figureAt           = "nodes_at_"          // at a level
	figureThanBest     = "less_than_best_at_" // reduction of nodes relative to the best upstream row
	figureThanBase     = "less_than_base_at_" // reduction of nodes relative to the base row
	atBase             = "base"
)

// FigureAt returns the figure name for nodes at a level.
func FigureAt(level float64) string { return figureAt + percent(level) }

// FigureThanBest returns the name for the reduction of nodes relative to the best upstream row.
func FigureThanBest(level float64) string { return figureThanBest + percent(level) }

// FigureThanBase returns the same relative to the base row.
func FigureThanBase(level float64) string { return figureThanBase + percent(level) }

// FigureNodesAtBase returns the figure name for nodes at the unserved work of the base row.
func FigureNodesAtBase() string { return figureAt + atBase }

// FigureAtBase returns the name for the reduction relative to the base row, at its unserved work.
func FigureAtBase() string { return figureThanBase + atBase }

func percent(level float64) string { return strconv.FormatFloat(level*100, 'g', 6, 64) }

// Summary is one row with its figures.
type Summary struct {
	Row
	Outcome Outcome // of all containers
	Figures []backtest.Figure
}

// Figure returns a figure by name. An unknown figure is NaN.
func (s *Summary) Figure(name string) backtest.Figure {
	for _, f := range s.Figures {
		if f.Name == name {
			return f
		}
	}
	nan := math.NaN()
	return backtest.Figure{Name: name, Value: nan, Low: nan, High: nan}
}

type fleetOutcomes struct {
	*Comparison
	outcomes []Outcome
}

// Summarise returns the figures of all rows. outcomes[0] holds the outcomes of each row on the
// fleet of all containers, and the others on drawn fleets, for the intervals.
func (c *Comparison) Summarise(outcomes [][]Outcome) []Summary {
	all := make([]Summary, len(c.Rows))
	for row := range c.Rows {
		all[row] = Summary{Row: c.Rows[row], Outcome: outcomes[0][row]}
		all[row].Figures = c.overDraws(outcomes, func(d fleetOutcomes) []backtest.Figure { return d.figures(row) })
	}
	return all
}

// Best returns the nodes of the best upstream row at each level, and at the unserved work of the
// base row. The best row may differ between levels and fleets.
func (c *Comparison) Best(outcomes [][]Outcome) []backtest.Figure {
	return c.overDraws(outcomes, func(d fleetOutcomes) (figures []backtest.Figure) {
		for _, level := range Levels() {
			figures = append(figures, backtest.Figure{Name: FigureAt(level), Value: d.best(level)})
		}
		return append(figures, backtest.Figure{Name: FigureNodesAtBase(), Value: d.best(d.baseRisk())})
	})
}

func (c *Comparison) overDraws(outcomes [][]Outcome, of func(fleetOutcomes) []backtest.Figure) []backtest.Figure {
	var figures []backtest.Figure
	var values [][]float64
	for i := range outcomes {
		for at, f := range of(fleetOutcomes{c, outcomes[i]}) {
			if i == 0 {
				figures, values = append(figures, f), append(values, nil)
			} else {
				values[at] = append(values[at], f.Value)
			}
		}
	}
	for at := range figures {
		figures[at].Low, figures[at].High = backtest.Interval95(values[at])
	}
	return figures
}

func (d fleetOutcomes) figures(row int) []backtest.Figure {
	o := &d.outcomes[row]
	s := &o.AsIs
	figures := []backtest.Figure{
		{Name: FigureNodes, Value: s.Nodes}, {Name: FigureNodeHours, Value: s.NodeHours},
		{Name: FigureOfFirst, Value: s.Nodes / d.outcomes[d.InitialRow].AsIs.Nodes},
		{Name: FigureNotServed, Value: s.NotServed()}, {Name: FigureWorst, Value: s.Worst},
		{Name: FigureKills, Value: s.PerPodDay(s.Kills)}, {Name: FigurePressure, Value: s.PerPodDay(s.Pressure)},
		{Name: FigureMoves, Value: s.PerPodDay(s.Moves)}, {Name: FigureEvictions, Value: s.PerPodDay(s.Evictions())},
		{Name: FigureChanges, Value: s.PerPodDay(s.Resizes + s.Evictions())}, {Name: FigureResizes, Value: s.PerPodDay(s.Resizes) / 24},
		{Name: FigureMemoryFactor, Value: o.MemoryFactor},
	}
	for _, level := range Levels() {
		own := InterpolateCount(o.Points, level)
		figures = append(figures, backtest.Figure{Name: FigureAt(level), Value: own},
			backtest.Figure{Name: FigureThanBest(level), Value: 1 - own/d.best(level)},
			backtest.Figure{Name: FigureThanBase(level), Value: 1 - own/InterpolateCount(d.outcomes[d.BaseRow].Points, level)})
	}
	own := InterpolateCount(o.Points, d.baseRisk())
	return append(figures, backtest.Figure{Name: FigureNodesAtBase(), Value: own},
		backtest.Figure{Name: FigureAtBase(), Value: 1 - own/d.outcomes[d.BaseRow].AsIs.Nodes})
}

// baseRisk returns the unserved share of work of the base row, more than 0.
func (d fleetOutcomes) baseRisk() float64 {
	return max(d.outcomes[d.BaseRow].AsIs.NotServed(), minRisk)
}

// best returns the nodes of the best upstream row at an unserved share, NaN if no row reaches it.
func (d fleetOutcomes) best(notServed float64) float64 {
	least := math.NaN()
	for i, row := range d.Rows {
		if n := InterpolateCount(d.outcomes[i].Points, notServed); row.Upstream && !math.IsNaN(n) && !(least <= n) {
			least = n
		}
	}
	return least
}
