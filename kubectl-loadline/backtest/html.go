package backtest

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

//go:embed page.html
var pageText string

type page struct {
	Settings []Setting `json:"settings"`
	Planes   []plane   `json:"planes"`
	Nodes    *nodePage `json:"nodes"`
	Charts   []chart   `json:"charts"`
}

type plane struct {
	Resource string   `json:"resource"`
	Title    string   `json:"title"`
	Risk     string   `json:"risk"`
	Columns  []string `json:"columns"`
	Points   []spot   `json:"points"`
}

type spot struct {
	Name      string   `json:"name"`
	Slack     number   `json:"slack"`
	Risk      number   `json:"risk"`
	Changes   number   `json:"changes"`
	Dominated string   `json:"dominated"`
	Cells     []string `json:"cells"`
}

type chart struct {
	Title   string       `json:"title"`
	Unit    string       `json:"unit"`
	Start   float64      `json:"start"`  // seconds since 1970
	Length  float64      `json:"length"` // of a frame, seconds
	Highest []number     `json:"highest"`
	Mean    []number     `json:"mean"`
	Request []number     `json:"request"`
	Limit   []number     `json:"limit"`
	Target  []number     `json:"target"`
	Lower   []number     `json:"lower"`
	Upper   []number     `json:"upper"`
	Starved []number     `json:"starved"`
	Names   [3][]string  `json:"names"`
	Steps   [][][]number `json:"steps"`
	Events  []event      `json:"events"`
}

type event struct {
	At      float64 `json:"at"`
	Kill    bool    `json:"kill,omitempty"`
	Evicted bool    `json:"evicted,omitempty"`
	Text    string  `json:"text"`
}

// HTML writes a self-contained page.
func (d *Report) HTML(out io.Writer, charts []Chart) error {
	p := page{Settings: d.Settings, Planes: []plane{}, Charts: []chart{}}
	for k := range resources.Kind(resources.Kinds) {
		if len(d.Fronts[k]) > 0 {
			p.Planes = append(p.Planes, d.spots(k))
		}
	}
	if d.Nodes != nil {
		p.Nodes = d.Nodes.page()
	}
	for _, c := range charts {
		p.Charts = append(p.Charts, chartOf(c))
	}
	content, err := json.Marshal(p)
	if err != nil {
		return err
	}
	// A template package would keep every exported method of every type in the program. Marshal
	// escapes all characters that could end the script.
	before, after, _ := strings.Cut(pageText, "{{.}}")
	_, err = io.WriteString(out, before+string(content)+after)
	return err
}

func (d *Report) spots(k resources.Kind) plane {
	p := plane{Resource: k.String(), Risk: "work above the request", Columns: titles(tableColumns[k])}
	if k == resources.Memory {
		p.Risk = "days with an OOM kill"
	}
	for _, at := range d.Fronts[k] {
		s := spot{Name: at.Candidate, Slack: number(at.Slack), Risk: number(at.Risk), Changes: number(at.Changes), Dominated: at.Dominated}
		for i := range d.Scored {
			of := &d.Scored[i]
			if of.Kind != k || of.Class != "" || of.Candidate != at.Candidate {
				continue
			}
			p.Title = fmt.Sprintf("%d containers, %.1f container-days, steps of %s", of.Containers, of.Days, d.steps(k))
			s.Cells = cells(k, of.Figure)
		}
		p.Points = append(p.Points, s)
	}
	return p
}

// chartOf converts a timeline to millicores and MiB.
func chartOf(c Chart) chart {
	f, unit, name := c.Timeline, 1.0, "m"
	if f.Kind == resources.Memory {
		unit, name = 1<<20, "MiB"
	}
	out := chart{Title: c.Title, Unit: name, Start: float64(f.Start) / 1e9, Length: float64(f.Length) / 1e9, Names: f.Names, Events: []event{}}
	for i := range f.Frames {
		frame := &f.Frames[i]
		for _, v := range []struct {
			to    *[]number
			value float64
		}{
			{&out.Highest, frame.Highest}, {&out.Mean, frame.Mean}, {&out.Request, frame.Request}, {&out.Limit, frame.Limit},
			{&out.Target, frame.Target}, {&out.Lower, frame.Lower}, {&out.Upper, frame.Upper},
		} {
			*v.to = append(*v.to, number(v.value/unit))
		}
		out.Starved = append(out.Starved, number(frame.Starved))
		var steps [][]number
		for _, values := range frame.Steps {
			role := []number{}
			for _, v := range values {
				role = append(role, number(v/unit))
			}
			steps = append(steps, role)
		}
		out.Steps = append(out.Steps, steps)
	}
	for _, e := range f.Events {
		text := fmt.Sprintf("request %.4g to %.4g %s, %s", e.From/unit, e.To/unit, name, e.Cause)
		if e.Evicted {
			text += ", evicted"
		}
		if e.Kill {
			text = fmt.Sprintf("killed: used %.4g %s, limit %.4g %s", e.From/unit, name, e.To/unit, name)
		}
		out.Events = append(out.Events, event{At: float64(e.At) / 1e9, Kill: e.Kill, Evicted: e.Evicted, Text: text})
	}
	return out
}

const chartPoints = 480

// Chart is one container under one candidate over time.
type Chart struct {
	Title    string
	Timeline *replay.Timeline
}

// charts replays the charted containers under all recipes. Baselines have no charts.
func (c *Config) charts(ctx context.Context, p plan, from []Source, d *Report) ([]Chart, error) {
	if c.Output != "html" || c.Charts == 0 || len(p.candidates) == 0 {
		return nil, nil
	}
	keys := d.Worst(p.candidates[len(p.candidates)-1].Name, c.Charts)
	recipes := slices.DeleteFunc(slices.Clone(p.candidates), func(one backtest.Candidate) bool { return !slices.Contains(c.Recipes, one.Name) })
	found := make([][]Chart, len(keys))
	for _, one := range from {
		if slices.ContainsFunc(keys, func(k Key) bool { return k.Dataset == one.Dataset }) {
			chartsOf(ctx, one, p, keys, recipes, found)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	for i, charts := range found {
		if len(charts) == 0 && len(recipes) > 0 {
			return nil, fmt.Errorf("%s %s/%s could be read once, but not again", keys[i].Dataset, keys[i].Workload, keys[i].Container)
		}
	}
	return slices.Concat(found...), nil
}

func chartsOf(ctx context.Context, from Source, p plan, keys []Key, recipes []backtest.Candidate, found [][]Chart) {
	drawn := func(workload, container string) bool {
		return slices.ContainsFunc(keys, func(k Key) bool {
			return k.Dataset == from.Dataset && k.Workload == workload && k.Container == container
		})
	}
	for r, problem := range from.Read(ctx, drawn) {
		if r == nil || problem != nil && !problem.Warning {
			continue // reported during scoring
		}
		for k := range resources.Kind(resources.Kinds) {
			at := slices.Index(keys, Key{Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Kind: k})
			if at < 0 {
				continue
			}
			for _, one := range recipes {
				title := fmt.Sprintf("%s %s/%s (%s): %s, %s", r.Dataset, r.Workload, r.Container, r.Class, k, one.Name)
				found[at] = append(found[at], Chart{Title: title, Timeline: backtest.RunTimeline(r, k, p.options, one, chartPoints)})
			}
		}
	}
}

// Key identifies a container and a kind.
type Key struct {
	Dataset, Workload, Container string
	Kind                         resources.Kind
}

// Worst returns up to most containers of each kind, the most expensive under a candidate first.
func (d *Report) Worst(candidate string, most int) []Key {
	var all []Key
	for k := range resources.Kind(resources.Kinds) {
		var results []*backtest.Result
		for i := range d.Results {
			if r := &d.Results[i]; r.Candidate == candidate && r.Kind == k {
				results = append(results, r)
			}
		}
		slices.SortStableFunc(results, func(a, b *backtest.Result) int { return cmp.Compare(price(b), price(a)) })
		for _, r := range results[:min(most, len(results))] {
			all = append(all, Key{r.Dataset, r.Workload, r.Container, k})
		}
	}
	return all
}

// price returns the cost per container-day, so that the length of a recording does not matter.
func price(r *backtest.Result) float64 {
	t := &r.Scored
	sum := float64(t.Evictions)*backtest.EvictionPrice + float64(t.Kills)*backtest.KillPrice + starvedHours(r)*backtest.StarvedCoreHour
	if r.Kind == resources.Memory {
		sum += hours(r, t.Over) * backtest.GiBHour
	} else {
		sum += hours(r, t.Over)
	}
	return sum / max(t.Days, 1)
}
