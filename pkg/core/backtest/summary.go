package backtest

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// Seed is the seed of the bootstrap draws.
const Seed = 20260301

// Draws is the number of bootstrap draws for an interval.
const Draws = 1000

// Figure is a measure of a fleet with its 95% interval.
type Figure struct {
	Name             string
	Value, Low, High float64
}

// Summary aggregates the results of one candidate for one resource.
type Summary struct {
	Candidate  string
	Kind       resources.Kind
	Class      replay.Class // empty = all
	Cold       bool         // warm-up, else scored phase
	Containers int
	Days       float64
	Figures    []Figure

	Near, Close, Rise, Fall Wait
	BetweenP10, BetweenP50  float64 // quantiles of the median seconds between changes per container
	Excess                  float64 // median of usage above the limit at kills
	Finest                  float64 // lowest detectable rate: with no event, the rate is below three times this
}

// Wait is the time until an event, including cases in which it did not occur.
type Wait struct {
	Median   float64 // seconds, infinite if fewer than half reached it
	Censored float64 // share that did not reach it
	Cases    int
}

// Figure returns a figure by name, and whether it exists.
func (s *Summary) Figure(name string) (Figure, bool) { return findFigure(s.Figures, name) }

func findFigure(figures []Figure, name string) (Figure, bool) {
	i := slices.IndexFunc(figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		return Figure{}, false
	}
	return figures[i], true
}

// Summarise returns a summary for each resource, class and candidate, of the scored phase or the
// warm-up. The summary of all classes comes first. Candidates keep the order of the results.
func Summarise(results []Result, cold bool) []Summary {
	var names []string
	for i := range results {
		if !slices.Contains(names, results[i].Candidate) {
			names = append(names, results[i].Candidate)
		}
	}
	var all []Summary
	for k := range resources.Kind(resources.Kinds) {
		for _, class := range append([]replay.Class{""}, replay.Classes()...) {
			for _, name := range names {
				var of []*Result
				for i := range results {
					if r := &results[i]; r.Candidate == name && r.Kind == k && (class == "" || r.Class == class) {
						of = append(of, r)
					}
				}
				if len(of) > 0 {
					all = append(all, summarise(of, name, k, class, cold))
				}
			}
		}
	}
	return all
}

func summarise(results []*Result, name string, k resources.Kind, class replay.Class, cold bool) Summary {
	s := Summary{Candidate: name, Kind: k, Class: class, Cold: cold, Containers: len(results)}
	tallies := make([]*Tally, len(results))
	var near, exact, rises, falls []Outcome
	var between, excess []float64
	for i, r := range results {
		tallies[i] = phase(r, cold)
		s.Days += tallies[i].Days
		near, exact = append(near, r.Near), append(exact, r.Close)
		rises, falls = append(rises, r.Rises...), append(falls, r.Falls...)
		excess = append(excess, tallies[i].Excess...)
		if len(tallies[i].Between) > 0 {
			between = append(between, Quantile(tallies[i].Between, 0.5))
		}
	}
	var all []Formula
	for i := range Measures {
		if m := &Measures[i]; m.Has(k) {
			all = append(all, m.figure(tallies))
		}
	}
	s.Figures = Intervals(len(tallies), all)
	s.Near, s.Close, s.Rise, s.Fall = wait(near), wait(exact), wait(rises), wait(falls)
	s.BetweenP10, s.BetweenP50, s.Excess = Quantile(between, 0.1), Quantile(between, 0.5), Quantile(excess, 0.5)
	if s.Days > 0 {
		s.Finest = 1 / s.Days
	}
	return s
}

func phase(r *Result, cold bool) *Tally {
	if cold {
		return &r.Cold
	}
	return &r.Scored
}

func (m *Measure) figure(tallies []*Tally) Formula {
	parts, wholes := make([]float64, len(tallies)), make([]float64, len(tallies))
	for i, t := range tallies {
		parts[i], wholes[i] = m.Of(t)
	}
	return Formula{m.Name, m.over(parts, wholes)}
}

// Ratio returns the ratio of two sums over the given container indexes.
func Ratio(parts, wholes []float64, of []int) float64 {
	part, whole := 0.0, 0.0
	for _, i := range of {
		part, whole = part+parts[i], whole+wholes[i]
	}
	return ratio(part, whole)
}

// Random is a deterministic pseudorandom generator. Its value is the state.
type Random uint64

// IntN returns a number in [0, n). n must be at least 1.
func (d *Random) IntN(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

// wait returns the Kaplan-Meier estimate of the median. Outcomes that were not reached count for
// their observed time.
func wait(outcomes []Outcome) Wait {
	w := Wait{Median: math.Inf(1), Cases: len(outcomes)}
	if len(outcomes) == 0 {
		return w
	}
	ordered := slices.Clone(outcomes)
	slices.SortFunc(ordered, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.Seconds, b.Seconds), count(b.Reached)-count(a.Reached))
	})
	left := 1.0
	for i, o := range ordered {
		if !o.Reached {
			w.Censored += 1 / float64(len(ordered))
			continue
		}
		left *= 1 - 1/float64(len(ordered)-i)
		if left <= 0.5+1e-12 && math.IsInf(w.Median, 1) {
			w.Median = o.Seconds
		}
	}
	return w
}

// Point is a candidate with its trade-offs for one resource.
type Point struct {
	Candidate string
	Kind      resources.Kind
	Slack     float64 // of the fleet
	Risk      float64 // share of days with a kill, or of work above the request
	Changes   float64 // per container-day
	Dominated string  // by the first candidate that is no worse in all three and better in one, empty = Pareto-optimal
}

// Front returns the points of one resource, from the summaries of all classes in their order.
func Front(summaries []Summary, k resources.Kind) []Point {
	risk := "starved_work"
	if k == resources.Memory {
		risk = "oom_day_share"
	}
	var points []Point
	for i := range summaries {
		if s := &summaries[i]; s.Kind == k && s.Class == "" {
			slack, _ := s.Figure("slack")
			hazard, _ := s.Figure(risk)
			changes, _ := s.Figure("changes_per_day")
			points = append(points, Point{Candidate: s.Candidate, Kind: k, Slack: slack.Value, Risk: hazard.Value, Changes: changes.Value})
		}
	}
	for i := range points {
		for j := range points {
			if points[j].dominates(points[i]) {
				points[i].Dominated = points[j].Candidate
				break
			}
		}
	}
	return points
}

func (p Point) dominates(q Point) bool {
	return p.Slack <= q.Slack && p.Risk <= q.Risk && p.Changes <= q.Changes && (p.Slack < q.Slack || p.Risk < q.Risk || p.Changes < q.Changes)
}
