package backtest

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// measure is a figure of a fleet: the ratio of two sums over containers or, with
// a quantile, that of the containers' own ratios. A mean over containers is a
// ratio whose second part is 1.
type measure struct {
	name     string
	kind     resources.Kind
	both     bool // for both kinds
	quantile float64
	of       func(*Tally) (part, whole float64)
}

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

// measures are the columns of a summary, in their order.
var measures = []measure{
	{name: "slack", both: true, of: slack},
	{name: "slack_mean", both: true, of: mean((*Tally).Slack, reserves)},
	{name: "slack_p50", both: true, quantile: 0.5, of: slack},
	{name: "slack_p90", both: true, quantile: 0.9, of: slack},
	{name: "slack_p95", both: true, quantile: 0.95, of: slack},
	{name: "slack_peak", both: true, of: func(t *Tally) (float64, float64) { return t.PeakOver, t.PeakReserved }},
	{name: "slack_peak_mean", both: true, of: mean((*Tally).PeakSlack, reserves)},
	{name: "utilisation", both: true, of: func(t *Tally) (float64, float64) { return t.Used, t.Reserved }},
	{name: "saving", both: true, of: func(t *Tally) (float64, float64) { return t.Initial - t.Reserved, t.Initial }},
	{name: "oom_day_share", kind: resources.Memory, of: each(func(t *Tally) int { return t.KillDays }, dates)},
	{name: "oom_per_day", kind: resources.Memory, of: each(func(t *Tally) int { return t.Kills }, days)},
	{name: "oom_containers", kind: resources.Memory, of: mean(func(t *Tally) float64 { return float64(min(t.Kills, 1)) }, runs)},
	{name: "severe_day_share", kind: resources.Memory, of: each(func(t *Tally) int { return t.SevereDays }, dates)},
	{name: "above_request", kind: resources.Memory, of: func(t *Tally) (float64, float64) { return t.Starved, t.Seconds }},
	{name: "starved_work", kind: resources.CPU, of: func(t *Tally) (float64, float64) { return t.StarvedWork, t.Used }},
	{name: "starved_work_mean", kind: resources.CPU, of: mean((*Tally).StarvedWorkShare, uses)},
	{name: "starved_time_mean", kind: resources.CPU, of: mean((*Tally).StarvedShare, runs)},
	{name: "starved_day_share", kind: resources.CPU, of: each(func(t *Tally) int { return t.StarvedDays }, dates)},
	{name: "starved_longest_p95", kind: resources.CPU, quantile: 0.95, of: func(t *Tally) (float64, float64) { return t.Longest, 1 }},
	{name: "throttled_time", kind: resources.CPU, of: func(t *Tally) (float64, float64) { return t.Throttled, t.Seconds }},
	{name: "unserved_work", kind: resources.CPU, of: func(t *Tally) (float64, float64) { return t.Unserved, t.Used }},
	{name: "changes_per_day", both: true, of: each(func(t *Tally) int { return t.Changes }, days)},
	{name: "evictions_per_day", both: true, of: each(func(t *Tally) int { return t.Evictions }, days)},
	{name: "moves_per_day", both: true, of: each(func(t *Tally) int { return t.Moves }, days)},
	{name: "churn_per_day", both: true, of: func(t *Tally) (float64, float64) { return t.Churn, t.Days }},
	{name: "reversals", both: true, of: each(func(t *Tally) int { return t.Reversals }, func(t *Tally) float64 { return float64(t.Changes) })},
	{name: "pointless", both: true, of: each(func(t *Tally) int { return t.Pointless }, func(t *Tally) float64 { return float64(t.Changes) })},
	{name: "no_change", both: true, of: mean(func(t *Tally) float64 { return 1 - float64(min(t.Changes, 1)) }, runs)},
	{name: "regret", both: true, of: func(t *Tally) (float64, float64) { return t.Over - t.OverDaily, t.Reserved }},
}
