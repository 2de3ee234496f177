package replay

import (
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Advisor recommends. It sees what the recommender of a cluster would.
type Advisor interface {
	// Observe takes the use of a kind, in millicores or bytes, as measured at an
	// instant; limit is what it could have at most, 0 = no limit.
	Observe(at time.Time, k resources.Kind, use, limit resources.Amount)
	// Killed takes the report of a kill for want of memory: what was requested, and the limit that was hit.
	Killed(at time.Time, request, limit resources.Amount)
	// Advise returns the recommendation for a container with the current requests. A kind that it lacks stays as it is.
	Advise(now time.Time, current resources.List) resources.Bounds
}

// Listener is an Advisor that also wants to know how long work waited for CPU.
type Listener interface {
	// Waited takes the share of the time, 0 to 1, in which it did, right after the use of CPU at that instant.
	Waited(at time.Time, use resources.Amount, share float64)
}

// Starter is an Advisor that also wants to know when a container starts.
type Starter interface {
	// Started takes the instant. What is observed before it is of another container.
	Started(at time.Time)
}

// Protector is an Advisor that says whether memory limits follow the requests.
type Protector interface {
	// SeparateMemoryLimit reports whether they do not: the target of memory is what is
	// requested, and its upper bound what the limit protects.
	SeparateMemoryLimit() bool
}

// Witness sees what happens. What it gets is only good during the call.
type Witness interface {
	Sample(Sample)
	Advised(Advice)
	Changed(Change)
	Killed(Kill)
}

// Sample is one recorded sample of one kind, and what it met.
type Sample struct {
	At             int64 // nanoseconds since 1970
	Hold           int64 // nanoseconds that it stands for
	Down           int64 // of these, in which the container did not run
	Kind           resources.Kind
	Use            float64          // as recorded
	Seen           float64          // as a node would show it; NaN = not at all
	Backlog        float64          // core seconds of work put off, after the sample
	Request, Limit resources.Amount // in force; limit 0 = none
}

// Advice is a recommendation, after the caps of the policy.
type Advice struct {
	At     int64
	Bounds resources.Bounds
}

// Change is an applied change of one request, or of the memory limit alone: then From is To.
type Change struct {
	At       int64
	Kind     resources.Kind
	From, To resources.Amount
	Evicted  bool // by a restart of the pod; else in place
	Anew     bool // a new pod has it from its start: nothing was disturbed
	Cause    disruption.Cause
}

// Kill is a kill for want of memory.
type Kill struct {
	At    int64
	Use   float64 // as recorded
	Limit resources.Amount
}

// LimitPolicy says what limit goes with a request.
type LimitPolicy uint8

// The policies. KeepRatio is Equal where request and limit are not both recorded.
const (
	NoLimit LimitPolicy = iota
	KeepRatio
	Proportional // the request times a factor; with 1 they are equal
)

// Limit is a policy and its factor.
type Limit struct {
	Policy LimitPolicy
	Factor float64 // of Proportional, 1 or more
}

// String returns the form that reports show.
func (l Limit) String() string {
	switch {
	case l.Policy == NoLimit:
		return "none"
	case l.Policy == KeepRatio:
		return "keep-ratio"
	case l.Factor == 1:
		return "equal"
	}
	return fmt.Sprintf("%v x request", l.Factor)
}

// Setup is all that a replay depends on besides the recording and the advisor.
type Setup struct {
	Sized  [resources.Kinds]bool  // kinds that are recommended; others keep their first request
	Limits [resources.Kinds]Limit // of the kinds
	Flat   resources.List         // first requests; where absent the recorded one or, without, Guess
	Guess  float64                // first request as a multiple of the highest use in the first hour
	Rule   policy.Rule            // least and most that is allowed

	// Scrape is how often use is measured, as a metrics server does: CPU as the mean since the time before, memory as
	// it is then. 0 = the use of each sample is seen, if it lasts until a tick.
	Scrape  time.Duration
	NewPod  time.Duration // a gap of at least this is the end of a pod; the next has what is recommended then. 0 = never
	Startup bool          // the recording begins when its container starts; else nobody knows when that was
	Afresh  bool          // a container that was killed uses memory as from its start on; else as recorded for that time

	Carry        bool          // CPU work that did not fit is put off; else it is dropped
	Tick         time.Duration // how often the recommender looks and the updater plans
	Restart      time.Duration // how long a restart takes
	Backoff      time.Duration // added after a kill, and doubled after each further one
	Longest      time.Duration // most that the back-off grows to
	BackoffReset time.Duration // time without a kill after which the back-off begins anew

	Update Update
}

// Update is the policy by which recommendations are applied.
type Update struct {
	Mode       disruption.Mode
	Planner    disruption.Config
	FromChange bool // Planner.Lifetime counts from the last change; else from the start of the pod
	AfterKill  bool // a larger memory target is applied at once after a kill, before the restart
	HoldCuts   bool // a cut that puts the memory limit under the current use is refused
}

// DefaultSetup sizes one kind by the defaults of the reference: memory with a
// limit of 1.2 times its request, CPU without, changes in place.
func DefaultSetup(sized ...resources.Kind) Setup {
	s := Setup{
		Limits: [resources.Kinds]Limit{resources.Memory: {Proportional, 1.2}},
		Guess:  2, Rule: policy.Default(), Tick: time.Minute,
		Restart: time.Minute, Backoff: 10 * time.Second, Longest: 5 * time.Minute, BackoffReset: 10 * time.Minute,
		Update: Update{
			Mode: disruption.InPlaceOrRecreate,
			Planner: disruption.Config{
				MinReplicas: 1, Tolerance: 1, Threshold: 0.1, Lifetime: 12 * time.Hour, QuickOOM: 10 * time.Minute, FreeResizes: true,
			},
			FromChange: true, AfterKill: true, HoldCuts: true,
		},
	}
	for _, k := range sized {
		s.Sized[k] = true
	}
	return s
}

// Validate returns all problems of s joined, nil if there is none.
func (s Setup) Validate() error {
	var problems []error
	check := func(ok bool, what string, value any, want string) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s is %v: must be %s", what, value, want))
		}
	}
	for k, l := range s.Limits {
		check(l.Policy != Proportional || l.Factor >= 1 && l.Factor <= 1e6, "limit factor of "+resources.Kind(k).String(), l.Factor, "from 1 to 1000000")
		check(s.Flat.Value(resources.Kind(k)) >= 0, "first request of "+resources.Kind(k).String(), s.Flat.Value(resources.Kind(k)), "0 or more")
	}
	check(s.Sized != [resources.Kinds]bool{}, "number of sized kinds", 0, "1 or more")
	check(s.Guess > 0 && s.Guess <= 1e6, "factor of a guessed request", s.Guess, "more than 0, up to 1000000")
	check(s.Tick >= time.Second, "tick", s.Tick, "1s or longer")
	check(s.Scrape >= 0, "time between two measurements", s.Scrape, "0 or longer")
	check(s.NewPod >= 0, "gap that ends a pod", s.NewPod, "0 or longer")
	check(s.Restart >= 0, "restart", s.Restart, "0 or longer")
	check(s.Backoff >= 0 && s.Longest >= s.Backoff, "longest back-off", s.Longest, fmt.Sprintf("at least the first one, %v", s.Backoff))
	check(s.BackoffReset >= 0, "time without a kill", s.BackoffReset, "0 or longer")
	check(s.Update.Mode == disruption.Recreate || s.Update.Mode == disruption.InPlaceOrRecreate, "update mode", s.Update.Mode, "Recreate or InPlaceOrRecreate")
	check(s.Update.Planner.Threshold >= 0, "least change", s.Update.Planner.Threshold, "0 or more")
	check(s.Update.Planner.Lifetime >= 0, "least age", s.Update.Planner.Lifetime, "0 or longer")
	return errors.Join(problems...)
}
