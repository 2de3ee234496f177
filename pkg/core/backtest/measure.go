package backtest

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// Measure is a figure of a fleet: the ratio of two sums over containers or, with
// a quantile, that of the containers' own ratios. A mean over containers is a
// ratio whose second part is 1.
type Measure struct {
	Name     string
	kind     resources.Kind
	both     bool // for both kinds
	quantile float64
	Of       func(*Tally) (part, whole float64)
}

// Has reports whether the measure is of a kind.
func (m *Measure) Has(k resources.Kind) bool { return m.both || m.kind == k }

// mean is a measure in which small containers count the same as large ones.
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

// Unit is what an amount of a kind is divided by for people: cores and GiB.
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

// Measures are the columns of a summary, in their order.
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
