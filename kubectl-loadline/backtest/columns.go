package backtest

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"strconv"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/resources"
)

// column is one column of the rows.
type column struct {
	name  string
	value func(*Row) any // string, float64, int or bool
}

var columns = []column{
	{"dataset", func(r *Row) any { return r.Dataset }},
	{"workload", func(r *Row) any { return r.Workload }},
	{"container", func(r *Row) any { return r.Container }},
	{"class", func(r *Row) any { return r.Class }},
	{"step_s", func(r *Row) any { return r.StepSeconds }},
	{"days", func(r *Row) any { return r.Days }},
	{"recommender", func(r *Row) any { return r.Candidate }},
	{"resource", func(r *Row) any { return r.Resource }},
	{"limit_policy", func(r *Row) any { return r.LimitPolicy }},
	{"r0", func(r *Row) any { return r.First }},
	{"mean_request", func(r *Row) any { return r.MeanRequest }},
	{"mean_usage", func(r *Row) any { return r.MeanUsage }},
	{"slack_abs", func(r *Row) any { return r.SlackAbsolute }},
	{"slack_rel", func(r *Row) any { return r.Slack }},
	{"slack_rel_peak", func(r *Row) any { return r.PeakSlack }},
	{"over_hours", func(r *Row) any { return r.OverHours }},
	{"oom", func(r *Row) any { return r.Kills }},
	{"oom_days", func(r *Row) any { return r.KillDays }},
	{"above_request_share", func(r *Row) any { return r.AboveRequest }},
	{"throttled_share", func(r *Row) any { return r.Throttled }},
	{"unserved_share", func(r *Row) any { return r.Unserved }},
	{"starved_share", func(r *Row) any { return r.Starved }},
	{"starved_hours", func(r *Row) any { return r.StarvedHours }},
	{"changes", func(r *Row) any { return r.Changes }},
	{"evictions", func(r *Row) any { return r.Evictions }},
	{"churn", func(r *Row) any { return r.Churn }},
	{"reversals", func(r *Row) any { return r.Reversals }},
	{"t_converge_s", func(r *Row) any { return r.ConvergeSeconds }},
	{"converged", func(r *Row) any { return r.Converged }},
	{"regret_hours", func(r *Row) any { return r.RegretHours }},
	{"short", func(r *Row) any { return r.Short }},
	{"clipped", func(r *Row) any { return r.Clipped }},
}

// exact is how many digits numbers have: enough to tell any two apart, and few
// enough that the last bit of a sum does not show.
const exact = 10

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', exact, 64)
	case int:
		return strconv.Itoa(v)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// CSV writes a line for each row.
func (d *Document) CSV(out io.Writer) error {
	w := csv.NewWriter(out)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.name
	}
	if err := w.Write(line); err != nil {
		return err
	}
	for i := range d.Rows {
		for j, c := range columns {
			line[j] = text(c.value(&d.Rows[i]))
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// number is a float64 that JSON can hold: infinity, where something never came,
// is null.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), 0) || math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return []byte(strconv.FormatFloat(float64(n), 'g', exact, 64)), nil
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

// JSON writes all of the document.
func (d *Document) JSON(out io.Writer) error {
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
	}
	file.Settings, file.Seed, file.Draws = d.Settings, backtest.Seed, backtest.Draws
	for i := range d.Rows {
		fields := make(map[string]any, len(columns)) // written in the order of names
		for _, c := range columns {
			fields[c.name] = c.value(&d.Rows[i])
			if f, ok := fields[c.name].(float64); ok {
				fields[c.name] = number(f)
			}
		}
		file.Results = append(file.Results, fields)
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
	encoder := json.NewEncoder(out)
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
