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

// add adds the sums of o. Longest and Backlog become the larger of both.
func (t *Tally) add(o *Tally) {
	for _, f := range []struct {
		to   *float64
		from float64
	}{
		{&t.Days, o.Days}, {&t.Seconds, o.Seconds}, {&t.Reserved, o.Reserved}, {&t.Initial, o.Initial}, {&t.Used, o.Used},
		{&t.Over, o.Over}, {&t.PeakReserved, o.PeakReserved}, {&t.PeakOver, o.PeakOver}, {&t.OverStatic, o.OverStatic},
		{&t.OverDaily, o.OverDaily}, {&t.Starved, o.Starved}, {&t.StarvedWork, o.StarvedWork}, {&t.Throttled, o.Throttled},
		{&t.Unserved, o.Unserved}, {&t.Churn, o.Churn},
	} {
		*f.to += f.from
	}
	for _, f := range []struct {
		to   *int
		from int
	}{
		{&t.Dates, o.Dates}, {&t.StarvedDays, o.StarvedDays}, {&t.Kills, o.Kills}, {&t.KillDays, o.KillDays},
		{&t.SevereDays, o.SevereDays}, {&t.Changes, o.Changes}, {&t.Evictions, o.Evictions}, {&t.Reversals, o.Reversals},
		{&t.Pointless, o.Pointless}, {&t.Moves, o.Moves},
	} {
		*f.to += f.from
	}
	t.Longest, t.Backlog = max(t.Longest, o.Longest), max(t.Backlog, o.Backlog)
	t.Excess = append(t.Excess, o.Excess...)
	t.Between = append(t.Between, o.Between...)
}

// Sum returns the tallies added up.
func Sum(tallies ...*Tally) Tally {
	var sum Tally
	for _, t := range tallies {
		sum.add(t)
	}
	return sum
}

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

// Saving returns what share of the first request was given back.
func (t *Tally) Saving() float64 { return ratio(t.Initial-t.Reserved, t.Initial) }

// StarvedShare returns the share of time with more use than request; for memory
// that is the risk of an eviction when the node is short of it.
func (t *Tally) StarvedShare() float64 { return ratio(t.Starved, t.Seconds) }

// StarvedWorkShare returns the share of use that was above the request.
func (t *Tally) StarvedWorkShare() float64 { return ratio(t.StarvedWork, t.Used) }

// ThrottledShare returns the share of time with more use than limit.
func (t *Tally) ThrottledShare() float64 { return ratio(t.Throttled, t.Seconds) }

// UnservedShare returns the share of use that was above the limit.
func (t *Tally) UnservedShare() float64 { return ratio(t.Unserved, t.Used) }

// KillRate returns kills per container-day.
func (t *Tally) KillRate() float64 { return ratio(float64(t.Kills), t.Days) }

// KillDayShare returns the share of days with a kill.
func (t *Tally) KillDayShare() float64 { return ratio(float64(t.KillDays), float64(t.Dates)) }

// SevereShare returns the share of days with four kills or more.
func (t *Tally) SevereShare() float64 { return ratio(float64(t.SevereDays), float64(t.Dates)) }

// StarvedDayShare returns the share of days of which a twentieth was starved.
func (t *Tally) StarvedDayShare() float64 { return ratio(float64(t.StarvedDays), float64(t.Dates)) }

// ChangeRate returns changes per container-day.
func (t *Tally) ChangeRate() float64 { return ratio(float64(t.Changes), t.Days) }

// EvictionRate returns evictions per container-day.
func (t *Tally) EvictionRate() float64 { return ratio(float64(t.Evictions), t.Days) }

// ChurnRate returns the churn per container-day.
func (t *Tally) ChurnRate() float64 { return ratio(t.Churn, t.Days) }

// MoveRate returns moves of the target per container-day.
func (t *Tally) MoveRate() float64 { return ratio(float64(t.Moves), t.Days) }

// ReversalShare returns the share of changes that went the other way than the
// one before.
func (t *Tally) ReversalShare() float64 { return ratio(float64(t.Reversals), float64(t.Changes)) }

// PointlessShare returns the share of changes that were undone within a day.
func (t *Tally) PointlessShare() float64 { return ratio(float64(t.Pointless), float64(t.Changes)) }

// Regret returns what was reserved and not used beyond what the best daily
// requests would have left unused; below 0 where that is less.
func (t *Tally) Regret() float64 { return t.Over - t.OverDaily }

// MedianExcess returns how far off the limits were at kills, 0 without any.
func (t *Tally) MedianExcess() float64 { return Quantile(t.Excess, 0.5) }

// Quantile returns a quantile of values by nearest rank from below, 0 if there
// are none.
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
