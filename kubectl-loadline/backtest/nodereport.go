package backtest

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/nodes"
	"loadline.dev/loadline/pkg/printable"
)

func (n *Nodes) describe() []Setting {
	placing, moves, emptied := "at the start", "moves", "none is emptied"
	if n.Placing > 0 {
		placing = fmt.Sprintf("every %v", n.Placing)
	}
	if n.Stay {
		moves = "waits"
	}
	if n.Consolidate > 0 {
		emptied = fmt.Sprintf("at most one is emptied every %v", n.Consolidate)
	}
	shares := "every 5 minutes"
	if n.Settle {
		shares += ", and when a pod comes to a node"
	}
	begin := "one copy of all at a time"
	if n.Apart {
		begin = "each at a time of its own"
	}
	return []Setting{
		{Name: "nodes", Value: fmt.Sprintf("%s cores, %s; %s", n.CPU.String(), n.Memory.String(), emptied)},
		{Name: "pods", Value: fmt.Sprintf("%d for each container, %s; CPU x %g, memory x %g; placed from scratch %s; what does not fit in place %s",
			n.Copies, begin, n.ScaleCPU, n.ScaleMemory, placing, moves)},
		{Name: "shared", Value: strings.Join(n.Share, ", ") + ", " + shares},
	}
}

var unscaledColumns = []figureColumn{
	{nodes.FigureNodes, "NODES", 1}, {nodes.FigureNodeHours, "NODE-HOURS", 1}, {nodes.FigureOfFirst, "OF FIRST %", 100}, {nodes.FigureNotServed, "NOT SERVED %", 100},
	{nodes.FigureWorst, "WORST POD %", 100}, {nodes.FigureKills, "OOM/DAY", 1}, {nodes.FigurePressure, "PRESSURE/DAY", 1},
	{nodes.FigureEvictions, "EVICTIONS/DAY", 1}, {nodes.FigureChanges, "CHANGES/DAY", 1}, {nodes.FigureResizes, "RESIZES/HOUR", 1},
}

// equalColumns returns the columns of recipes at equal unserved work.
func equalColumns() (columns []figureColumn) {
	for _, level := range nodes.Levels() {
		columns = append(columns, figureColumn{nodes.FigureAt(level), fmt.Sprintf("NODES AT %g %%", level*100), 1},
			figureColumn{nodes.FigureThanBest(level), "THAN BEST %", 100})
	}
	return append(columns, figureColumn{nodes.FigureAtBase(), "THAN BASE %", 100}, figureColumn{nodes.FigureMemoryFactor, "MEMORY X", 1})
}

func (j *NodeReport) label(s *nodes.Summary) string {
	if s.Shared {
		return s.Name + ", shared"
	}
	return s.Name
}

func (j *NodeReport) cell(f backtest.Figure, factor float64) string {
	switch {
	case math.IsNaN(f.Value):
		return "-"
	case j.Draws == 0 || f.Low == f.Value && f.High == f.Value:
		return figureText(f.Value * factor)
	case math.IsNaN(f.Low):
		return figureText(f.Value*factor) + " [not known]"
	}
	return interval(f, factor)
}

func (j *NodeReport) cells(s *nodes.Summary, columns []figureColumn) (all []string) {
	for _, c := range columns {
		all = append(all, j.cell(s.Figure(c.figure), c.factor))
	}
	return all
}

func (j *NodeReport) bestRow() *nodes.Summary {
	return &nodes.Summary{Row: nodes.Row{Name: "best upstream with hindsight"}, Figures: j.Best}
}

func (j *NodeReport) title() string {
	text := fmt.Sprintf("%d pods of %d containers, %s in steps of %v", j.Pods, j.Containers, duration(j.Time.Seconds()), j.Step)
	if j.Short > 0 {
		text += fmt.Sprintf(" (%d containers are too short)", j.Short)
	}
	if j.Draws > 0 {
		text += fmt.Sprintf("; intervals of 95 %% from %d draws of containers (seed %d)", j.Draws, backtest.Seed)
	}
	return text
}

func (j *NodeReport) equalTitle() string {
	return fmt.Sprintf("nodes at equal unserved work; BEST is the best upstream setting with hindsight, BASE is %s unscaled, at its own unserved work", j.Base)
}

func (j *NodeReport) table(w io.Writer) {
	head := func(t io.Writer, columns []figureColumn) {
		printable.Row(t, slices.Concat([]string{""}, titles(columns), []string{""})...)
	}
	row := func(t io.Writer, s *nodes.Summary, columns []figureColumn) {
		printable.Row(t, slices.Concat([]string{j.label(s)}, j.cells(s, columns), []string{""})...)
	}
	printable.Fprintf(w, "\nnodes: %s; a day is a pod-day\n", j.title())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head(t, unscaledColumns)
	for i := range j.Rows {
		row(t, &j.Rows[i], unscaledColumns)
	}
	_ = t.Flush()
	printable.Fprintf(w, "\n%s:\n", j.equalTitle())
	head(t, equalColumns())
	for i := range j.Rows {
		if len(j.Rows[i].Outcome.Points) > 0 {
			row(t, &j.Rows[i], equalColumns())
		}
	}
	if len(j.Best) > 0 {
		row(t, j.bestRow(), equalColumns())
	}
	_ = t.Flush()
}

type nodeLine struct {
	summary *nodes.Summary
	factor  float64 // of CPU requests
	memory  float64
	score   *nodes.Score
	asIs    bool // unscaled, regardless of the factors
}

func (j *NodeReport) lines() (all []nodeLine) {
	for _, rows := range [][]nodes.Summary{j.Rows, j.Upstream} {
		for i := range rows {
			s := &rows[i]
			all = append(all, nodeLine{s, 1, 1, &s.Outcome.AsIs, true})
			for at := range s.Outcome.Points {
				all = append(all, nodeLine{s, s.Outcome.Points[at].Factor, s.Outcome.MemoryFactor, &s.Outcome.Points[at].Score, false})
			}
		}
	}
	return all
}

// nodeColumns are the columns of a run. Counts are totals of the run.
var nodeColumns = []column[nodeLine]{
	{"recommender", func(l *nodeLine) any { return l.summary.Name }},
	{"shared", func(l *nodeLine) any { return l.summary.Shared }},
	{"as_is", func(l *nodeLine) any { return l.asIs }},
	{"cpu_factor", func(l *nodeLine) any { return l.factor }},
	{"memory_factor", func(l *nodeLine) any { return l.memory }},
	{"nodes", func(l *nodeLine) any { return l.score.Nodes }},
	{"node_hours", func(l *nodeLine) any { return l.score.NodeHours }},
	{"pod_days", func(l *nodeLine) any { return l.score.PodDays }},
	{"work_core_hours", func(l *nodeLine) any { return l.score.Work }},
	{"not_served_core_hours", func(l *nodeLine) any { return l.score.Lost }},
	{"not_served", func(l *nodeLine) any { return l.score.NotServed() }},
	{"worst_not_served", func(l *nodeLine) any { return l.score.Worst }},
	{"oom", func(l *nodeLine) any { return l.score.Kills }},
	{"pressure_evictions", func(l *nodeLine) any { return l.score.Pressure }},
	{"moves", func(l *nodeLine) any { return l.score.Moves }},
	{"sharing_evictions", func(l *nodeLine) any { return l.score.Leaves }},
	{"consolidation_evictions", func(l *nodeLine) any { return l.score.Consolidated }},
	{"resizes", func(l *nodeLine) any { return l.score.Resizes }},
}

type nodeReportJSON struct {
	Containers int              `json:"containers"`
	Short      int              `json:"shortContainers"`
	Pods       int              `json:"pods"`
	Seconds    number           `json:"seconds"`
	Step       number           `json:"stepSeconds"`
	Draws      int              `json:"draws"`
	Base       string           `json:"base"`
	Rows       []nodeRowJSON    `json:"rows"`
	Best       []figure         `json:"bestUpstream"`
	Runs       []map[string]any `json:"runs"`
}

type nodeRowJSON struct {
	Recommender string   `json:"recommender"`
	Shared      bool     `json:"shared"`
	Upstream    bool     `json:"upstream"`
	Figures     []figure `json:"figures"`
}

func (j *NodeReport) json() *nodeReportJSON {
	out := &nodeReportJSON{
		Containers: j.Containers, Short: j.Short, Pods: j.Pods, Seconds: number(j.Time.Seconds()), Step: number(j.Step.Seconds()),
		Draws: j.Draws, Base: j.Base, Best: figures(j.Best),
	}
	for _, rows := range [][]nodes.Summary{j.Rows, j.Upstream} {
		for i := range rows {
			out.Rows = append(out.Rows, nodeRowJSON{rows[i].Name, rows[i].Shared, rows[i].Upstream, figures(rows[i].Figures)})
		}
	}
	for _, l := range j.lines() {
		out.Runs = append(out.Runs, fields(nodeColumns, &l))
	}
	return out
}

type nodePage struct {
	Title   string     `json:"title"`
	Equal   string     `json:"equal"`
	Columns []string   `json:"columns"`
	AtEqual []string   `json:"atEqual"`
	Rows    []nodeSpot `json:"rows"`
}

type nodeSpot struct {
	Name   string      `json:"name"`
	AsIs   *[2]number  `json:"asIs"`   // nodes and fraction of unserved work
	Points [][3]number `json:"points"` // with the factor of CPU requests
	Cells  []string    `json:"cells"`
	Equal  []string    `json:"equal"`
}

func (j *NodeReport) page() *nodePage {
	p := &nodePage{Title: j.title(), Equal: j.equalTitle(), Columns: titles(unscaledColumns), AtEqual: titles(equalColumns()), Rows: []nodeSpot{}}
	for i := range j.Rows {
		s := &j.Rows[i]
		as := &s.Outcome.AsIs
		spot := nodeSpot{Name: j.label(s), AsIs: &[2]number{number(as.Nodes), number(as.NotServed())}, Points: [][3]number{}, Cells: j.cells(s, unscaledColumns), Equal: j.cells(s, equalColumns())}
		for _, at := range s.Outcome.Points {
			spot.Points = append(spot.Points, [3]number{number(at.Score.Nodes), number(at.Score.NotServed()), number(at.Factor)})
		}
		p.Rows = append(p.Rows, spot)
	}
	if len(j.Best) > 0 {
		s := j.bestRow()
		spot := nodeSpot{Name: s.Name, Points: [][3]number{}, Equal: j.cells(s, equalColumns())}
		for _, level := range nodes.Levels() {
			spot.Points = append(spot.Points, [3]number{number(s.Figure(nodes.FigureAt(level)).Value), number(level), number(math.NaN())})
		}
		p.Rows = append(p.Rows, spot)
	}
	return p
}
