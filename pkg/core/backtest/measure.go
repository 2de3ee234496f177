package backtest

import (
	"cmp"
	"math"
	"slices"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
)

// Measure is a figure of a fleet: the ratio of two sums over containers or, with quantile, a
// quantile of the ratios of the containers. A mean over containers is a ratio with 1 as second
// part.
type Measure struct {
	Name     string
	kind     resources.Kind
	both     bool // for both resources
	quantile float64
	Of       func(*Tally) (part, whole float64)
}

// Has reports whether the measure applies to a resource.
func (m *Measure) Has(k resources.Kind) bool { return m.both || m.kind == k }

// mean gives all containers the same weight.
func mean(of func(*Tally) float64, has func(*Tally) bool) func(*Tally) (float64, float64) {
	return func(t *Tally) (float64, float64) {
		if !has(t) {
			return 0, 0
		}
		return of(t), 1
	}
}

func reserves(t *Tally) bool { return t.Reserved > 0 }
func uses(t *Tally) bool     { return t.Used > 0 }
func runs(t *Tally) bool     { return t.Dates > 0 }

// Unit is the divisor that converts amounts to cores and GiB.
func Unit(k resources.Kind) float64 {
	if k == resources.CPU {
		return 1000
	}
	return 1 << 30
}

func slack(t *Tally) (float64, float64) { return t.Over, t.Reserved }

func each(n func(*Tally) int, per func(*Tally) float64) func(*Tally) (float64, float64) {
	return func(t *Tally) (float64, float64) { return float64(n(t)), per(t) }
}

func days(t *Tally) float64  { return t.Days }
func dates(t *Tally) float64 { return float64(t.Dates) }

// Measures are the columns of a summary in order.
var Measures = []Measure{
	{Name: "slack", both: true, Of: slack},
	{Name: "slack_mean", both: true, Of: mean((*Tally).Slack, reserves)},
	{Name: "slack_p50", both: true, quantile: 0.5, Of: slack},
	{Name: "slack_p90", both: true, quantile: 0.9, Of: slack},
	{Name: "slack_p95", both: true, quantile: 0.95, Of: slack},
	{Name: "slack_peak", both: true, Of: func(t *Tally) (float64, float64) { return t.PeakOver, t.PeakReserved }},
	{Name: "slack_peak_mean", both: true, Of: mean((*Tally).PeakSlack, reserves)},
	{Name: "utilisation", both: true, Of: func(t *Tally) (float64, float64) { return t.Used, t.Reserved }},
	{Name: "saving", both: true, Of: func(t *Tally) (float64, float64) { return t.Initial - t.Reserved, t.Initial }},
	{Name: "oom_day_share", kind: resources.Memory, Of: each(func(t *Tally) int { return t.KillDays }, dates)},
	{Name: "oom_per_day", kind: resources.Memory, Of: each(func(t *Tally) int { return t.Kills }, days)},
	{Name: "oom_containers", kind: resources.Memory, Of: mean(func(t *Tally) float64 { return float64(min(t.Kills, 1)) }, runs)},
	{Name: "severe_day_share", kind: resources.Memory, Of: each(func(t *Tally) int { return t.SevereDays }, dates)},
	{Name: "above_request", kind: resources.Memory, Of: func(t *Tally) (float64, float64) { return t.Starved, t.Seconds }},
	{Name: "starved_work", kind: resources.CPU, Of: func(t *Tally) (float64, float64) { return t.StarvedWork, t.Used }},
	{Name: "starved_work_mean", kind: resources.CPU, Of: mean((*Tally).StarvedWorkShare, uses)},
	{Name: "starved_time_mean", kind: resources.CPU, Of: mean((*Tally).StarvedShare, runs)},
	{Name: "starved_day_share", kind: resources.CPU, Of: each(func(t *Tally) int { return t.StarvedDays }, dates)},
	{Name: "starved_longest_p95", kind: resources.CPU, quantile: 0.95, Of: func(t *Tally) (float64, float64) { return t.Longest, 1 }},
	{Name: "throttled_time", kind: resources.CPU, Of: func(t *Tally) (float64, float64) { return t.Throttled, t.Seconds }},
	{Name: "unserved_work", kind: resources.CPU, Of: func(t *Tally) (float64, float64) { return t.Unserved, t.Used }},
	{Name: "changes_per_day", both: true, Of: each(func(t *Tally) int { return t.Changes }, days)},
	{Name: "evictions_per_day", both: true, Of: each(func(t *Tally) int { return t.Evictions }, days)},
	{Name: "moves_per_day", both: true, Of: each(func(t *Tally) int { return t.Moves }, days)},
	{Name: "churn_per_day", both: true, Of: func(t *Tally) (float64, float64) { return t.Churn, t.Days }},
	{Name: "reversals", both: true, Of: each(func(t *Tally) int { return t.Reversals }, func(t *Tally) float64 { return float64(t.Changes) })},
	{Name: "pointless", both: true, Of: each(func(t *Tally) int { return t.Pointless }, func(t *Tally) float64 { return float64(t.Changes) })},
	{Name: "no_change", both: true, Of: mean(func(t *Tally) float64 { return 1 - float64(min(t.Changes, 1)) }, runs)},
	{Name: "regret", both: true, Of: func(t *Tally) (float64, float64) { return t.Over - t.OverDaily, t.Reserved }},
}

const (
	undoneTolerance = 0.10 // relative difference to the former request that counts as undone
	moveThreshold   = 0.10 // relative change of the target that counts as a move
)

type stability struct {
	tally  *Tally
	last   int64   // time of the last change, 0 = none in this phase
	sign   float64 // of the last change, 0 = none yet
	recent []recent
	level  float64 // target before the next move, 0 = none yet
}

// recent is a change that may still turn out to be pointless.
type recent struct {
	at   int64
	from float64
	sign float64 // of the change
}

func (s *stability) startPhase(t *Tally) { s.tally, s.last, s.recent = t, 0, s.recent[:0] }

func (s *stability) change(n replay.Change) {
	t := s.tally
	step := math.Log(float64(n.To) / float64(n.From))
	t.Changes++
	t.Evictions += count(n.Evicted)
	t.Churn += math.Abs(step)
	t.Reversals += count(s.sign*step < 0)
	if s.last != 0 {
		t.Between = append(t.Between, float64(n.At-s.last)/1e9)
	}
	s.last = n.At
	if step == 0 { // change of the limit only
		return
	}
	s.sign = math.Copysign(1, step)
	kept := s.recent[:0]
	for _, r := range s.recent {
		if n.At-r.at > day {
			continue
		}
		if r.sign*step < 0 && math.Abs(float64(n.To)/r.from-1) <= undoneTolerance {
			t.Pointless++
			continue
		}
		kept = append(kept, r)
	}
	s.recent = append(kept, recent{n.At, float64(n.From), s.sign})
}

func (s *stability) target(level float64) {
	if s.level == 0 {
		s.level = level
	}
	if math.Abs(level-s.level) > moveThreshold*s.level {
		s.tally.Moves++
		s.level = level
	}
}

// Formula computes a figure from container indexes, which may repeat.
type Formula struct {
	Name  string
	Value func(of []int) float64
}

// Intervals computes figures over all n containers, with intervals from the same draws.
func Intervals(n int, all []Formula) []Figure {
	of := make([]int, n)
	for i := range of {
		of[i] = i
	}
	figures, drawn := make([]Figure, len(all)), make([]float64, len(all)*Draws)
	for i, f := range all {
		figures[i] = Figure{Name: f.Name, Value: f.Value(of)}
	}
	draw := Random(Seed)
	for d := range Draws {
		for i := range of {
			of[i] = draw.IntN(n)
		}
		for i, f := range all {
			drawn[i*Draws+d] = f.Value(of)
		}
	}
	for i := range figures {
		figures[i].Low, figures[i].High = Interval95(drawn[i*Draws : (i+1)*Draws])
	}
	return figures
}

// Interval95 returns the range of 95% of the drawn values. NaN values count as outside the range.
// If 5% or more are NaN, the range is NaN.
func Interval95(values []float64) (low, high float64) {
	slices.Sort(values) // NaN comes first
	has := slices.IndexFunc(values, func(v float64) bool { return !math.IsNaN(v) })
	if has < 0 || has*20 >= len(values) {
		return math.NaN(), math.NaN()
	}
	outside := max(len(values)*25/1000-has, 0)
	values = values[has:]
	return values[outside], values[len(values)-1-outside]
}

func (m *Measure) over(parts, wholes []float64) func(of []int) float64 {
	if m.quantile > 0 {
		return quantileOf(m.quantile, parts, wholes)
	}
	return func(of []int) float64 { return Ratio(parts, wholes, of) }
}

// quantileOf sorts the container ratios only once for all draws.
func quantileOf(q float64, parts, wholes []float64) func(of []int) float64 {
	ratios, order := make([]float64, len(parts)), make([]int, 0, len(parts))
	for i, whole := range wholes {
		if whole != 0 {
			ratios[i], order = parts[i]/whole, append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(ratios[a], ratios[b]), a-b) })
	times, sorted := make([]int, len(parts)), make([]float64, 0, len(parts))
	return func(of []int) float64 {
		clear(times)
		for _, i := range of {
			times[i]++
		}
		sorted = sorted[:0]
		for _, i := range order {
			for range times[i] {
				sorted = append(sorted, ratios[i])
			}
		}
		return QuantileSorted(sorted, q)
	}
}

// Prices for a single total cost, relative to an unused reserved core-hour.
const (
	GiBHour         = 0.125
	KillPrice       = 20
	EvictionPrice   = 1
	StarvedCoreHour = 4
)

// Cost holds the costs of one candidate in the scored phase of all containers.
type Cost struct {
	Candidate        string
	CoreHours        float64 // reserved but unused
	GiBHours         float64 // reserved but unused
	Kills            int
	Evictions        int
	StarvedCoreHours float64
	Total            float64 // sum weighted by the prices
}

// CostOf returns the cost of a candidate.
func CostOf(results []Result, candidate string) Cost {
	c := Cost{Candidate: candidate}
	for i := range results {
		r := &results[i]
		if r.Candidate != candidate {
			continue
		}
		hours := r.Scored.Over / 3600 / Unit(r.Kind)
		if r.Kind == resources.Memory {
			c.GiBHours += hours
		} else {
			c.CoreHours += hours
			c.StarvedCoreHours += r.Scored.StarvedWork / 3600 / Unit(r.Kind)
		}
		c.Kills += r.Scored.Kills
		c.Evictions += r.Scored.Evictions
	}
	c.Total = c.CoreHours + GiBHour*c.GiBHours + KillPrice*float64(c.Kills) + EvictionPrice*float64(c.Evictions) + StarvedCoreHour*c.StarvedCoreHours
	return c
}
