package backtest

import (
	_ "embed" // the page
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"loadline.dev/loadline/pkg/core/resources"
)

//go:embed page.html
var pageText string

// page is what page.html draws.
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

// HTML writes a page that needs nothing but itself.
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
	// escapes what could end the script.
	before, after, _ := strings.Cut(pageText, "{{.}}")
	_, err = io.WriteString(out, before+string(content)+after)
	return err
}

// spots are the points of a kind, with the figures of the table.
func (d *Report) spots(k resources.Kind) plane {
	p := plane{Resource: k.String(), Risk: "work above the request", Columns: titles(shown[k])}
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

// chartOf puts a timeline in the units of people: millicores and MiB.
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
