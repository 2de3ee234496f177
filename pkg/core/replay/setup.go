package replay

import (
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Advisor computes recommendations from the same data as the recommender of a cluster.
type Advisor interface {
	// Observe adds a usage in millicores or bytes. limit is the maximum possible usage, 0 = none.
	Observe(at time.Time, k resources.Kind, use, limit resources.Amount)
	// Killed reports an OOM kill with the request and the limit that was hit.
	Killed(at time.Time, request, limit resources.Amount)
	// Advise returns the recommendation for the current requests. Absent resources do not change.
	Advise(now time.Time, current resources.List) resources.Bounds
}

// PressureObserver is an Advisor that also uses the time that work waited for CPU.
type PressureObserver interface {
	// ObservePressure adds the share of time, 0 to 1, in which work waited, right after Observe.
	ObservePressure(at time.Time, use resources.Amount, share float64)
}

// StartObserver is an Advisor that also uses container starts.
type StartObserver interface {
	// Started reports a container start. Earlier usage belongs to another container.
	Started(at time.Time)
}

// LimitSeparator is an Advisor whose memory limits may be independent of the requests.
type LimitSeparator interface {
	// SeparateMemoryLimit reports whether the upper bound is the memory limit.
	SeparateMemoryLimit() bool
}

// Observer receives the events of a replay. Its arguments are valid only during the call.
type Observer interface {
	Sample(Sample)
	Advised(Advice)
	Changed(Change)
	Killed(Kill)
}

// Sample is one recorded sample of one resource, with the resources in force.
type Sample struct {
	At             int64 // nanoseconds since 1970
	Duration       int64 // nanoseconds
	Down           int64 // part of Duration without a running container
	Kind           resources.Kind
	Use            float64          // as recorded
	Seen           float64          // as measured on a node, NaN = not measured
	Backlog        float64          // core seconds of delayed work after the sample
	Request, Limit resources.Amount // in force, limit 0 = none
}

// Advice is a recommendation after capping.
type Advice struct {
	At     int64
	Bounds resources.Bounds
}

// Change is an applied change of one request. If only the memory limit changed, From equals To.
type Change struct {
	At         int64
	Kind       resources.Kind
	From, To   resources.Amount
	Evicted    bool // by eviction, else by in-place resize
	AtCreation bool // applied at pod creation without disruption
	Cause      disruption.Cause
}

// Kill is an OOM kill.
type Kill struct {
	At    int64
	Use   float64 // as recorded
	Limit resources.Amount
}

// LimitPolicy determines the limit for a request.
type LimitPolicy uint8

// The policies. KeepRatio sets the limit equal to the request unless the recording has both.
const (
	NoLimit LimitPolicy = iota
	KeepRatio
	Proportional // request times a factor, 1 = equal
)

// Limit is a policy with its factor.
type Limit struct {
	Policy LimitPolicy
	Factor float64 // for Proportional, at least 1
}

// String returns the form for reports.
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

// Setup holds the parameters of a replay.
type Setup struct {
	Sized   [resources.Kinds]bool  // resources with recommendations, others keep their initial request
	Limits  [resources.Kinds]Limit // for each resource
	Initial resources.List         // initial requests, absent = recorded request or Guess
	Guess   float64                // initial request as a multiple of the peak of the first hour
	Rule    policy.Rule            // minimum and maximum

	// Scrape is the interval of measurements, as in a metrics server: CPU is the mean since the
	// last scrape, memory the current usage. 0 = each sample that lasts until a tick is measured.
	Scrape          time.Duration
	NewPod          time.Duration // minimum gap that starts a new pod, 0 = never
	Startup         bool          // recording begins with a container start, else unknown
	MemoryFromStart bool          // after a kill, memory usage restarts as at the pod's start

	CarryBacklog bool          // CPU work above the limit is delayed, else dropped
	Tick         time.Duration // interval of recommendations and plans
	Restart      time.Duration // duration of a restart
	Backoff      time.Duration // added after a kill, doubled after each further kill
	MaxBackoff   time.Duration // upper limit of the backoff
	BackoffReset time.Duration // time without a kill after which the backoff is reset

	Update Update
}

// Update holds the parameters of updates.
type Update struct {
	Mode             disruption.Mode
	Planner          disruption.Config
	FromChange       bool // Planner.Lifetime counts from the last change, else the pod start
	AfterKill        bool // apply a higher memory target before the restart
	RefuseUnsafeCuts bool // refuse to lower the memory limit below the current usage
}

// DefaultSetup returns a setup for the given resources with the defaults of the reference: memory
// with a limit of 1.2 times its request, CPU without limit, and in-place changes.
func DefaultSetup(sized ...resources.Kind) Setup {
	s := Setup{
		Limits: [resources.Kinds]Limit{resources.Memory: {Proportional, 1.2}},
		Guess:  2, Rule: policy.Default(), Tick: time.Minute,
		Restart: time.Minute, Backoff: 10 * time.Second, MaxBackoff: 5 * time.Minute, BackoffReset: 10 * time.Minute,
		Update: Update{
			Mode: disruption.InPlaceOrRecreate,
			Planner: disruption.Config{
				MinReplicas: 1, Tolerance: 1, Threshold: 0.1, Lifetime: 12 * time.Hour, QuickOOMTime: 10 * time.Minute, FreeResizes: true,
			},
			FromChange: true, AfterKill: true, RefuseUnsafeCuts: true,
		},
	}
	for _, k := range sized {
		s.Sized[k] = true
	}
	return s
}

// Validate returns all problems of s joined.
func (s Setup) Validate() error {
	var problems []error
	check := func(ok bool, name string, value any, want string) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s is %v: must be %s", name, value, want))
		}
	}
	for k, l := range s.Limits {
		check(l.Policy != Proportional || l.Factor >= 1 && l.Factor <= 1e6, "limit factor of "+resources.Kind(k).String(), l.Factor, "from 1 to 1000000")
		check(s.Initial.Value(resources.Kind(k)) >= 0, "first request of "+resources.Kind(k).String(), s.Initial.Value(resources.Kind(k)), "0 or more")
	}
	check(s.Sized != [resources.Kinds]bool{}, "number of sized kinds", 0, "1 or more")
	check(s.Guess > 0 && s.Guess <= 1e6, "factor of a guessed request", s.Guess, "more than 0, up to 1000000")
	check(s.Tick >= time.Second, "tick", s.Tick, "1s or longer")
	check(s.Scrape >= 0, "time between two measurements", s.Scrape, "0 or longer")
	check(s.NewPod >= 0, "gap that ends a pod", s.NewPod, "0 or longer")
	check(s.Restart >= 0, "restart", s.Restart, "0 or longer")
	check(s.Backoff >= 0 && s.MaxBackoff >= s.Backoff, "longest back-off", s.MaxBackoff, fmt.Sprintf("at least the first one, %v", s.Backoff))
	check(s.BackoffReset >= 0, "time without a kill", s.BackoffReset, "0 or longer")
	check(s.Update.Mode == disruption.Recreate || s.Update.Mode == disruption.InPlaceOrRecreate, "update mode", s.Update.Mode, "Recreate or InPlaceOrRecreate")
	check(s.Update.Planner.Threshold >= 0, "least change", s.Update.Planner.Threshold, "0 or more")
	check(s.Update.Planner.Lifetime >= 0, "least age", s.Update.Planner.Lifetime, "0 or longer")
	return errors.Join(problems...)
}
