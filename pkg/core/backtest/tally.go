package backtest

import "slices"

// Tally is what was counted in one phase. Where time is meant, the container ran
// and its use was recorded, unless said otherwise.
type Tally struct {
	Days     float64 // container-days that were recorded, running or not
	Seconds  float64 // time
	Reserved float64 // request, by time
	Initial  float64 // the first request, by time
	Used     float64 // recorded use, by time
	Over     float64 // what was reserved and not used, by time

	PeakReserved, PeakOver float64 // the same against the peak of each window
	OverStatic, OverDaily  float64 // Over of the best requests with hindsight

	Starved     float64 // time with more use than request
	StarvedWork float64 // the use above the request, by time
	Longest     float64 // the longest run of that
	Throttled   float64 // time with more use than limit
	Unserved    float64 // the use above the limit, by time
	Backlog     float64 // most work that was put off, in core seconds

	Dates       int       // days of which something was recorded, counted from the start of the phase
	StarvedDays int       // those of which more than a twentieth was starved
	Kills       int       // for want of memory
	KillDays    int       // days with one
	SevereDays  int       // days with four or more
	Excess      []float64 // use above the limit at each kill, as a fraction of the limit

	Changes   int       // of the request
	Evictions int       // those of them that restarted the pod
	Reversals int       // those that went the other way than the one before
	Pointless int       // those that were undone within a day
	Churn     float64   // sum of |ln(new/old)|
	Between   []float64 // times between changes
	Moves     int       // how often the target moved by more than 10 %, applied or not
}

// severe is how many kills make a day a crash loop.
const severe = 4

// ratio is 0 where there is nothing to divide by.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// MeanRequest returns the mean request.
func (t *Tally) MeanRequest() float64 { return ratio(t.Reserved, t.Seconds) }

// MeanUse returns the mean recorded use.
func (t *Tally) MeanUse() float64 { return ratio(t.Used, t.Seconds) }

// SlackAbsolute returns the mean of what was reserved and not used.
func (t *Tally) SlackAbsolute() float64 { return ratio(t.Over, t.Seconds) }

// Slack returns what share of the reserved was not used.
func (t *Tally) Slack() float64 { return ratio(t.Over, t.Reserved) }

// PeakSlack returns the same against the peak of each window.
func (t *Tally) PeakSlack() float64 { return ratio(t.PeakOver, t.PeakReserved) }

// StarvedShare returns the share of time with more use than request; for memory
// that is the risk of an eviction when the node is short of it.
func (t *Tally) StarvedShare() float64 { return ratio(t.Starved, t.Seconds) }

// StarvedWorkShare returns the share of use that was above the request.
func (t *Tally) StarvedWorkShare() float64 { return ratio(t.StarvedWork, t.Used) }

// ThrottledShare returns the share of time with more use than limit.
func (t *Tally) ThrottledShare() float64 { return ratio(t.Throttled, t.Seconds) }

// UnservedShare returns the share of use that was above the limit.
func (t *Tally) UnservedShare() float64 { return ratio(t.Unserved, t.Used) }

// ChurnRate returns the churn per container-day.
func (t *Tally) ChurnRate() float64 { return ratio(t.Churn, t.Days) }

// ReversalShare returns the share of changes that went the other way than the one before.
func (t *Tally) ReversalShare() float64 { return ratio(float64(t.Reversals), float64(t.Changes)) }

// Regret returns what was reserved and not used beyond what the best daily
// requests would have left unused; below 0 where that is less.
func (t *Tally) Regret() float64 { return t.Over - t.OverDaily }

// Quantile returns a quantile of values by nearest rank from below, 0 if there are none.
func Quantile(values []float64, q float64) float64 {
	ordered := slices.Clone(values)
	slices.Sort(ordered)
	return QuantileSorted(ordered, q)
}

// QuantileSorted is Quantile for values in order.
func QuantileSorted(ordered []float64, q float64) float64 {
	if len(ordered) == 0 {
		return 0
	}
	return ordered[min(int(q*float64(len(ordered))), len(ordered)-1)]
}
