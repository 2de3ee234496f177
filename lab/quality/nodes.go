package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"loadline.dev/loadline/hack/document"
	command "loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/core/nodes"
)

// cluster is a simulated cluster with pods from recordings.
type cluster struct {
	name, about   string
	files         []string // of the directory of recordings, missing ones are skipped
	kinds         []string // resources that count
	copies        int
	scale         float64 // of CPU and memory
	step          time.Duration
	placementTime time.Duration
	length        time.Duration
	part          string
	unscaled      bool // do not compare recipes at equal risk
}

var clusters = []cluster{
	{
		name: "Machines, CPU and memory", about: "each machine a quarter of its size, 21 copies of all that begin on other days, so that what peaked together does; report half",
		files: []string{"bitbrains-rnd-2013-08.csv.gz"}, kinds: []string{"cpu", "memory"},
		copies: 21, scale: 0.25, step: 5 * time.Minute, placementTime: 24 * time.Hour, length: 7 * 24 * time.Hour, part: "report",
	},
	{
		name: "Machines, CPU alone", about: "the same pods; memory does not count",
		files: []string{"bitbrains-rnd-2013-08.csv.gz"}, kinds: []string{"cpu"},
		copies: 21, scale: 0.25, step: 5 * time.Minute, placementTime: 24 * time.Hour, length: 7 * 24 * time.Hour, part: "report",
	},
	{
		name: "Pods of two test beds, CPU and memory", about: "40 copies of each bed, whose pods peak together in each copy; both halves, since one is too small for nodes",
		files: []string{"nezha-online-boutique.csv.gz", "nezha-train-ticket.csv.gz"}, kinds: []string{"cpu", "memory"},
		copies: 40, scale: 1, step: time.Minute, placementTime: 4 * time.Hour, length: 8 * time.Hour, part: "all",
	},
}

// nodeRecipes returns the compared recipes. The first is the base.
func nodeRecipes(kinds []string) (names []string) {
	for _, name := range []string{
		"vpa", "autopilot", "crane", "loadline", "loadline:memory=following", "loadline:cpu=mixed,memory=following",
		"loadline:cpu=tracking", "loadline:cpu=tracking,memory=following", "cruisekube", "loadline:cpu=shared", "loadline:cpu=shared,memory=following",
	} {
		if len(kinds) == 1 && strings.Contains(name, "memory=following") {
			if name = strings.TrimSuffix(name, ",memory=following"); name == "loadline:memory=following" {
				continue
			}
		}
		if name = withFloors(name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// upstreamRecipes returns the settings of the reference for the best with hindsight.
func upstreamRecipes(kinds []string) (names []string) {
	for _, memory := range []string{"", "target-memory=0.8,"} {
		if memory != "" && len(kinds) == 1 {
			continue
		}
		for _, share := range []float64{0.8, 0.9, 0.95, 0.98, 0.99, 1} {
			names = append(names, withFloors(fmt.Sprintf("vpa:%starget-cpu=%g", memory, share)))
		}
	}
	return names
}

// nodeDraws is the number of container draws for intervals. Each takes as long as a full
// simulation.
const nodeDraws = 10

func (c *cluster) simulate(recordings string, draws int) (*command.NodeReport, error) {
	var files []string
	for _, name := range c.files {
		if file := filepath.Join(recordings, name); exists(file) {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: there is none of %s", recordings, strings.Join(c.files, ", "))
	}
	config := command.Default()
	config.Baselines, config.Part, config.Kinds, config.Recipes = false, c.part, c.kinds, nodeRecipes(c.kinds)
	n := &config.Nodes
	n.Copies, n.Step, n.Placing, n.Time, n.Draws, n.Upstream = c.copies, c.step, c.placementTime, c.length, draws, upstreamRecipes(c.kinds)
	n.ScaleCPU, n.ScaleMemory = c.scale, c.scale
	if c.unscaled {
		n.Factors, n.Upstream, n.EqualKills = []float64{1}, nil, false
	}
	return command.CompareNodes(context.Background(), config, files...)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

var nodeColumns = []column{
	{head: "nodes", measure: nodes.FigureNodes},
	{head: "work not served, %", measure: nodes.FigureNotServed, percent: true},
	{head: "most of one pod, %", measure: nodes.FigureWorst, percent: true},
	{head: "OOM kills a pod-day", measure: nodes.FigureKills},
	{head: "evicted for want of memory a pod-day", measure: nodes.FigurePressure},
	{head: "all evictions a pod-day", measure: nodes.FigureEvictions},
	{head: "resizes a pod-hour", measure: nodes.FigureResizes},
	{head: "fewer nodes than `vpa` at its risk, %", measure: nodes.FigureAtBase(), percent: true},
	{head: "than the best of the reference at 0.1 %, %", measure: nodes.FigureThanBest(1e-3), percent: true},
	{head: "at 0.01 %, %", measure: nodes.FigureThanBest(1e-4), percent: true},
}

func writeNodes(page, recordings string, draws int) error {
	var b strings.Builder
	for i := range clusters {
		j, err := clusters[i].simulate(recordings, draws)
		if err != nil {
			return fmt.Errorf("%s: %w", clusters[i].name, err)
		}
		clusters[i].table(&b, j)
		nodeHoursTable(&b, j)
	}
	return document.Fill(page, "nodes", strings.TrimLeft(b.String(), "\n"))
}

func (c *cluster) table(b *strings.Builder, j *command.NodeReport) {
	fmt.Fprintf(b, "\n### %s\n\n%s: %d pods of %d containers for %s, in steps of %s; %d draws.\n\n", c.name, strings.ToUpper(c.about[:1])+c.about[1:], j.Pods, j.Containers, formatSpan(j.Time), formatSpan(j.Step), j.Draws)
	heads := []string{"recipe"}
	for _, c := range nodeColumns {
		heads = append(heads, c.head)
	}
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for i, name := range rowNames(j) {
		r := &j.Rows[i]
		fmt.Fprintf(b, "| %s |", name)
		for _, c := range nodeColumns {
			cell := "–"
			if f := r.Figure(c.measure); !math.IsNaN(f.Value) {
				cell = c.cell(f)
			}
			fmt.Fprintf(b, " %s |", cell)
		}
		b.WriteString("\n")
	}
}

// nodeHoursTable writes the node-hours of all recipes and of the best of the reference at equal
// work not served, with no more kills than the base.
func nodeHoursTable(b *strings.Builder, j *command.NodeReport) {
	fmt.Fprintf(b, "\nNode-hours in these %s at equal work not served, with no more OOM kills and evictions for want of memory than under `vpa`:\n\n", formatSpan(j.Time))
	b.WriteString("| recipe | as it is | what `vpa` leaves undone as it is | 0.1 % not served | 0.01 % |\n|---|---|---|---|---|\n")
	names, rows := rowNames(j), append(slices.Clone(j.Rows), nodes.Summary{Figures: j.Best})
	names = append(names, "the best of the reference with hindsight")
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(b, "| %s |", names[i])
		for _, measure := range []string{nodes.FigureNodes, nodes.FigureNodesAtBase(), nodes.FigureAt(1e-3), nodes.FigureAt(1e-4)} {
			cell, f := "–", r.Figure(measure)
			if !math.IsNaN(f.Value) {
				f.Value, f.Low, f.High = f.Value*j.Time.Hours(), f.Low*j.Time.Hours(), f.High*j.Time.Hours()
				cell = column{measure: measure}.cell(f)
			}
			fmt.Fprintf(b, " %s |", cell)
		}
		b.WriteString("\n")
	}
}

func rowNames(j *command.NodeReport) (names []string) {
	for i := range j.Rows {
		switch name := "`" + shortName(j.Rows[i].Name) + "`"; {
		case j.Rows[i].Shared:
			names = append(names, name+", **shared**")
		case i == 0:
			names = append(names, "the first requests")
		default:
			names = append(names, name)
		}
	}
	return names
}

// formatSpan formats a duration as whole days, hours or minutes.
func formatSpan(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}} {
		if n := d / unit.of; d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d %s", n, unit.name)
		}
	}
	return strings.TrimSuffix(d.String(), "0s")
}

// sampleCluster is the gated cluster. Its recordings are always available.
var sampleCluster = cluster{
	name: "sample", files: []string{"sample.csv.gz"}, kinds: []string{"cpu", "memory"},
	copies: 60, scale: 1, step: time.Minute, placementTime: 4 * time.Hour, length: 24 * time.Hour, part: "all", unscaled: true,
}

// nodeGauges are the node figures that must not grow. The sample has hardly any kills and
// evictions.
var nodeGauges = []string{nodes.FigureNodes, nodes.FigureNotServed, nodes.FigureKills, nodes.FigurePressure, nodes.FigureEvictions, nodes.FigureResizes}

// nodeRow is the figures of a recipe on the nodes of the sample.
type nodeRow struct {
	Recipe  string
	Shared  bool
	Figures map[string]float64
}

// gateNodes runs the sample on nodes, and compares the rows with the committed ones or replaces
// them.
func gateNodes(recordings, results string, update bool, out io.Writer) ([]string, error) {
	found, err := nodeRows(recordings)
	if err != nil {
		return nil, err
	}
	for _, row := range found {
		fmt.Fprintf(out, "nodes, %s:", row)
		for _, name := range nodeGauges {
			fmt.Fprintf(out, " %s %.6g;", name, row.Figures[name])
		}
		fmt.Fprintln(out)
	}
	return compareNodes(found, filepath.Join(results, "nodes.json"), update)
}

func nodeRows(recordings string) (found []nodeRow, err error) {
	j, err := sampleCluster.simulate(recordings, 0)
	if err != nil {
		return nil, err
	}
	for i := range j.Rows[1:] { // the first row is the initial requests
		r := &j.Rows[i+1]
		row := nodeRow{r.Name, r.Shared, map[string]float64{}}
		for _, name := range nodeGauges {
			row.Figures[name] = r.Figure(name).Value
		}
		found = append(found, row)
	}
	return found, nil
}

func compareNodes(found []nodeRow, file string, update bool) (worse []string, err error) {
	if update {
		content, err := json.MarshalIndent(found, "", " ")
		return nil, errors.Join(err, os.WriteFile(file, append(content, '\n'), 0o644))
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("committed result: %w", err)
	}
	var committed []nodeRow
	if err := json.Unmarshal(content, &committed); err != nil {
		return nil, fmt.Errorf("committed result %s: %w", file, err)
	}
	if !slices.EqualFunc(committed, found, func(a, b nodeRow) bool { return a.Recipe == b.Recipe && a.Shared == b.Shared }) {
		return nil, fmt.Errorf("committed result %s: has other recipes than the simulated ones: if this is intended, run with -update", file)
	}
	for i, is := range found {
		for _, name := range nodeGauges {
			if was := committed[i].Figures[name]; is.Figures[name] > was*(1+maxGrowth)+1e-9 {
				worse = append(worse, fmt.Sprintf("nodes, %s: %s: %.6g, was %.6g: more than 2 %% worse", is, name, is.Figures[name], was))
			}
		}
	}
	return worse, nil
}

func (r nodeRow) String() string {
	if r.Shared {
		return shortName(r.Recipe) + ", shared"
	}
	return shortName(r.Recipe)
}
