package backtest

import "slices"

// Tally sums one phase. Times count while the container ran with recorded usage, unless noted.
type Tally struct {
	Days     float64 // recorded container-days, running or not
	Seconds  float64 // time
	Reserved float64 // request x time
	Initial  float64 // initial request x time
	Used     float64 // usage x time
	Over     float64 // unused request x time

	PeakReserved, PeakOver float64 // the same against the peak of each window
	OverStatic, OverDaily  float64 // Over of the best requests with hindsight

	Starved     float64 // time with usage above the request
	StarvedWork float64 // usage above the request x time
	Longest     float64 // longest continuous starvation
	Throttled   float64 // time with usage above the limit
	Unserved    float64 // usage above the limit x time
	Backlog     float64 // maximum delayed work in core seconds

	Dates       int       // days with samples, counted from the start of the phase
	StarvedDays int       // days with more than 5% starved time
	Kills       int       // OOM kills
	KillDays    int       // days with a kill
	SevereDays  int       // days with four or more kills
	Excess      []float64 // usage above the limit at each kill, as a fraction of the limit

	Changes   int       // of the request
	Evictions int       // changes by eviction
	Reversals int       // changes in the opposite direction of the previous one
	Pointless int       // changes undone within a day
	Churn     float64   // sum of |ln(new/old)|
	Between   []float64 // times between changes
	Moves     int       // target changes over 10%, applied or not
}

const severeKills = 4

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// MeanRequest returns the mean request.
func (t *Tally) MeanRequest() float64 { return ratio(t.Reserved, t.Seconds) }

// MeanUse returns the mean usage.
func (t *Tally) MeanUse() float64 { return ratio(t.Used, t.Seconds) }

// SlackAbsolute returns the mean unused request.
func (t *Tally) SlackAbsolute() float64 { return ratio(t.Over, t.Seconds) }

// Slack returns the unused share of the request.
func (t *Tally) Slack() float64 { return ratio(t.Over, t.Reserved) }

// PeakSlack returns the unused share against the peak of each window.
func (t *Tally) PeakSlack() float64 { return ratio(t.PeakOver, t.PeakReserved) }

// StarvedShare returns the share of time with usage above the request. For memory this is the risk
// of a node-pressure eviction.
func (t *Tally) StarvedShare() float64 { return ratio(t.Starved, t.Seconds) }

// StarvedWorkShare returns the share of usage above the request.
func (t *Tally) StarvedWorkShare() float64 { return ratio(t.StarvedWork, t.Used) }

// ThrottledShare returns the share of time with usage above the limit.
func (t *Tally) ThrottledShare() float64 { return ratio(t.Throttled, t.Seconds) }

// UnservedShare returns the share of usage above the limit.
func (t *Tally) UnservedShare() float64 { return ratio(t.Unserved, t.Used) }

// ChurnRate returns the churn per container-day.
func (t *Tally) ChurnRate() float64 { return ratio(t.Churn, t.Days) }

// ReversalShare returns the share of changes in the opposite direction of the previous one.
func (t *Tally) ReversalShare() float64 { return ratio(float64(t.Reversals), float64(t.Changes)) }

// Regret returns the slack beyond the best daily requests. It may be negative.
func (t *Tally) Regret() float64 { return t.Over - t.OverDaily }

// Quantile returns a quantile of values by nearest rank from below, 0 if there are none.
func Quantile(values []float64, q float64) float64 {
	ordered := slices.Clone(values)
	slices.Sort(ordered)
	return QuantileSorted(ordered, q)
}

// QuantileSorted is Quantile for sorted values.
func QuantileSorted(ordered []float64, q float64) float64 {
	if len(ordered) == 0 {
		return 0
	}
	return ordered[min(int(q*float64(len(ordered))), len(ordered)-1)]
}
