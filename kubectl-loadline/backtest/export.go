package backtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/printable"
)

// column is one column of results in CSV, and one field in JSON.
type column[T any] struct {
	name  string
	value func(*T) any // string, float64, int or bool
}

// columns describe a scored container. Units: cores or bytes, core-hours or GiB-hours.
var columns = []column[backtest.Result]{
	{"dataset", func(r *backtest.Result) any { return r.Dataset }},
	{"workload", func(r *backtest.Result) any { return r.Workload }},
	{"container", func(r *backtest.Result) any { return r.Container }},
	{"class", func(r *backtest.Result) any { return string(r.Class) }},
	{"step_s", func(r *backtest.Result) any { return r.Step.Seconds() }},
	{"days", func(r *backtest.Result) any { return r.Scored.Days }},
	{"recommender", func(r *backtest.Result) any { return r.Candidate }},
	{"resource", func(r *backtest.Result) any { return r.Kind.String() }},
	{"limit_policy", func(r *backtest.Result) any { return r.Limit }},
	{"r0", func(r *backtest.Result) any { return float64(r.First) / scale(r.Kind) }},
	{"mean_request", func(r *backtest.Result) any { return r.Scored.MeanRequest() / scale(r.Kind) }},
	{"mean_usage", func(r *backtest.Result) any { return r.Scored.MeanUse() / scale(r.Kind) }},
	{"slack_abs", func(r *backtest.Result) any { return r.Scored.SlackAbsolute() / scale(r.Kind) }},
	{"slack_rel", func(r *backtest.Result) any { return r.Scored.Slack() }},
	{"slack_rel_peak", func(r *backtest.Result) any { return r.Scored.PeakSlack() }},
	{"over_hours", func(r *backtest.Result) any { return hours(r, r.Scored.Over) }},
	{"oom", func(r *backtest.Result) any { return r.Scored.Kills }},
	{"oom_days", func(r *backtest.Result) any { return r.Scored.KillDays }},
	{"above_request_share", func(r *backtest.Result) any { return starvedShare(r, resources.Memory) }},
	{"throttled_share", func(r *backtest.Result) any { return r.Scored.ThrottledShare() }},
	{"unserved_share", func(r *backtest.Result) any { return r.Scored.UnservedShare() }},
	{"starved_share", func(r *backtest.Result) any { return starvedShare(r, resources.CPU) }},
	{"starved_hours", func(r *backtest.Result) any { return starvedHours(r) }},
	{"changes", func(r *backtest.Result) any { return r.Scored.Changes }},
	{"evictions", func(r *backtest.Result) any { return r.Scored.Evictions }},
	{"churn", func(r *backtest.Result) any { return r.Scored.ChurnRate() }},
	{"reversals", func(r *backtest.Result) any { return r.Scored.ReversalShare() }},
	{"t_converge_s", func(r *backtest.Result) any { return r.Near.Seconds }},
	{"converged", func(r *backtest.Result) any { return r.Near.Reached }},
	{"regret_hours", func(r *backtest.Result) any { return hours(r, r.Scored.Regret()) }},
	{"short", func(r *backtest.Result) any { return r.Short }},
	{"clipped", func(r *backtest.Result) any { return r.Clipped }},
}

// starvedShare is the fraction of time with usage above the request, 0 for the other resource.
func starvedShare(r *backtest.Result, k resources.Kind) float64 {
	if r.Kind != k {
		return 0
	}
	return r.Scored.StarvedShare()
}

// significantDigits distinguishes any two results but hides the last bit of a sum.
const significantDigits = 10

func text(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'g', significantDigits, 64)
	}
	return fmt.Sprint(v)
}

// CSV writes a line for each result, or for each run on nodes if there are any.
func (d *Report) CSV(out io.Writer) error {
	if d.Nodes != nil {
		return writeCSV(out, nodeColumns, d.Nodes.lines())
	}
	return writeCSV(out, columns, d.Results)
}

func writeCSV[T any](out io.Writer, columns []column[T], results []T) error {
	rows := make([][]string, 1+len(results))
	for _, c := range columns {
		rows[0] = append(rows[0], c.name)
		for i := range results {
			rows[1+i] = append(rows[1+i], text(c.value(&results[i])))
		}
	}
	return printable.CSV(out, rows)
}

func fields[T any](columns []column[T], result *T) map[string]any {
	all := make(map[string]any, len(columns))
	for _, c := range columns {
		all[c.name] = c.value(result)
		if f, ok := all[c.name].(float64); ok {
			all[c.name] = number(f)
		}
	}
	return all
}

// number is a float64 for JSON. Infinity, which stands for an event that never came, becomes null.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), 0) || math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return []byte(strconv.FormatFloat(float64(n), 'g', significantDigits, 64)), nil
}

type figure struct {
	Name  string `json:"name"`
	Value number `json:"value"`
	Low   number `json:"low"`
	High  number `json:"high"`
}

type wait struct {
	Median   number `json:"medianSeconds"`
	Censored number `json:"censored"`
	Cases    int    `json:"cases"`
}

type summary struct {
	Recommender string   `json:"recommender"`
	Resource    string   `json:"resource"`
	Class       string   `json:"class"`
	Phase       string   `json:"phase"`
	Containers  int      `json:"containers"`
	Days        number   `json:"containerDays"`
	Finest      number   `json:"smallestRate"`
	Figures     []figure `json:"figures"`
	Converge    wait     `json:"converge25"`
	Close       wait     `json:"converge10"`
	Rise        wait     `json:"reactionUp"`
	Fall        wait     `json:"reactionDown"`
	BetweenP10  number   `json:"betweenChangesP10Seconds"`
	BetweenP50  number   `json:"betweenChangesP50Seconds"`
	Excess      number   `json:"excessAtOOM"`
}

type point struct {
	Recommender string `json:"recommender"`
	Slack       number `json:"slack"`
	Risk        number `json:"risk"`
	Changes     number `json:"changesPerDay"`
	Dominated   string `json:"dominatedBy,omitempty"`
}

type cost struct {
	Recommender      string `json:"recommender"`
	CoreHours        number `json:"coreHours"`
	GiBHours         number `json:"gibHours"`
	Kills            int    `json:"ooms"`
	Evictions        int    `json:"evictions"`
	StarvedCoreHours number `json:"starvedCoreHours"`
	Total            number `json:"total"`
}

type pair struct {
	Base        string   `json:"base"`
	Recommender string   `json:"recommender"`
	Resource    string   `json:"resource"`
	Containers  int      `json:"containers"`
	Reserved    figure   `json:"reserved"`
	Differences []figure `json:"differences"`
}

// JSON writes the whole report.
func (d *Report) JSON(out io.Writer) error {
	var file struct {
		Settings  []Setting        `json:"settings"`
		Seed      int              `json:"seed"`
		Draws     int              `json:"draws"`
		Results   []map[string]any `json:"results"`
		Summaries []summary        `json:"summaries"`
		Pairs     []pair           `json:"pairs"`
		CPU       []point          `json:"cpuFront"`
		Memory    []point          `json:"memoryFront"`
		Costs     []cost           `json:"costs"`
		Nodes     *nodeReportJSON  `json:"nodes,omitempty"`
	}
	file.Settings, file.Seed, file.Draws = d.Settings, backtest.Seed, backtest.Draws
	for i := range d.Results {
		file.Results = append(file.Results, fields(columns, &d.Results[i]))
	}
	for _, of := range [][]backtest.Summary{d.Scored, d.Cold} {
		for i := range of {
			file.Summaries = append(file.Summaries, summaryOf(&of[i]))
		}
	}
	for i := range d.Pairs {
		p := &d.Pairs[i]
		file.Pairs = append(file.Pairs, pair{p.Base, p.Other, p.Kind.String(), p.Containers, figureOf(p.Reserved), figures(p.Differences)})
	}
	file.CPU, file.Memory = points(d.Fronts[resources.CPU]), points(d.Fronts[resources.Memory])
	for _, c := range d.Costs {
		file.Costs = append(file.Costs, cost{c.Candidate, number(c.CoreHours), number(c.GiBHours), c.Kills, c.Evictions, number(c.StarvedCoreHours), number(c.Total)})
	}
	if d.Nodes != nil {
		file.Nodes = d.Nodes.json()
	}
	encoder := json.NewEncoder(printable.JSON(out))
	encoder.SetIndent("", " ")
	return encoder.Encode(file)
}

func points(of []backtest.Point) (out []point) {
	for _, p := range of {
		out = append(out, point{p.Candidate, number(p.Slack), number(p.Risk), number(p.Changes), p.Dominated})
	}
	return out
}

func summaryOf(s *backtest.Summary) summary {
	of := func(w backtest.Wait) wait { return wait{number(w.Median), number(w.Censored), w.Cases} }
	out := summary{
		Recommender: s.Candidate, Resource: s.Kind.String(), Class: string(s.Class), Phase: "scored", Containers: s.Containers,
		Days: number(s.Days), Finest: number(s.Finest), Converge: of(s.Near), Close: of(s.Close), Rise: of(s.Rise), Fall: of(s.Fall),
		BetweenP10: number(s.BetweenP10), BetweenP50: number(s.BetweenP50), Excess: number(s.Excess),
	}
	if s.Cold {
		out.Phase = "warm-up"
	}
	out.Figures = figures(s.Figures)
	return out
}

func figureOf(f backtest.Figure) figure {
	return figure{f.Name, number(f.Value), number(f.Low), number(f.High)}
}

func figures(of []backtest.Figure) (out []figure) {
	for _, f := range of {
		out = append(out, figureOf(f))
	}
	return out
}
