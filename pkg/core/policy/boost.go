package policy

import (
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// BoostType selects the formula of a startup boost.
type BoostType uint8

// Boost types. Package convert treats a missing type as BoostFactor, as the reference VPA does.
const (
	NoBoost BoostType = iota
	BoostFactor
	BoostQuantity
)

// Boost is extra CPU during container start.
type Boost struct {
	Type     BoostType
	Factor   int64            // for BoostFactor, at least 1
	Quantity resources.Amount // for BoostQuantity, in millicores
	Duration time.Duration    // after the pod becomes ready
}

// ErrBoost is returned for a boost that cannot be computed.
var ErrBoost = errors.New("startup boost cannot be computed")

// ApplyBoost returns f with boosted CPU for container c. The base is the request in f, or else the
// current request of c. The boosted request is at most maxCPU millicores, if that is not 0.
// maxAllowed does not limit a boost, but Ranges.Admit applies LimitRanges. f is returned unchanged
// without a boost or for a container that is Off.
func (r Rule) ApplyBoost(c Container, f ContainerTarget, maxCPU resources.Amount) (ContainerTarget, error) {
	if r.Off || r.Boost.Type == NoBoost || c.LimitsToZero(resources.CPU) && !f.WithoutLimit[resources.CPU] {
		return f, nil
	}
	base := f.Requests.Value(resources.CPU)
	if base <= 0 {
		base = max(c.Requests.Value(resources.CPU), 0)
	}
	boosted, err := r.Boost.apply(base)
	if err != nil {
		return f, fmt.Errorf("container %q: %w", c.Name, err)
	}
	if maxCPU > 0 {
		boosted = min(boosted, maxCPU)
	}
	limit := max(c.Limits.Value(resources.CPU), 0)
	if f.WithoutLimit[resources.CPU] {
		limit = 0
	}
	if r.keepsLimit(resources.CPU) {
		f.Requests = f.Requests.With(resources.CPU, belowLimit(boosted, limit))
		return f, nil
	}
	f.Requests = f.Requests.With(resources.CPU, boosted)
	limit, reason := scaleLimit(limit, c.Requests.Value(resources.CPU), boosted)
	switch derived := f.Limits.Value(resources.CPU); {
	case limit > 0:
		f.Limits = f.Limits.With(resources.CPU, limit)
	case derived > 0: // from the default of the namespace
		f.Limits = f.Limits.With(resources.CPU, max(derived, boosted))
	}
	if reason == LimitOverflow {
		f.Notes = append(f.Notes, Note{resources.CPU, reason})
	}
	return f, nil
}

func belowLimit(request, limit resources.Amount) resources.Amount {
	switch {
	case limit == 0 || request <= limit:
		return request
	case limit > 1:
		return limit - 1
	}
	return limit
}

func (b Boost) apply(base resources.Amount) (resources.Amount, error) {
	if b.Type == BoostQuantity {
		return base.Add(max(b.Quantity, 0)), nil
	}
	if b.Factor < 1 {
		return 0, fmt.Errorf("%w: factor is %d, must be at least 1", ErrBoost, b.Factor)
	}
	boosted, _ := base.Proportion(resources.Amount(b.Factor), 1)
	return boosted, nil
}

// BoostedPod is a pod with boosted containers.
type BoostedPod struct {
	Ready      bool
	ReadySince time.Time
	Containers []BoostedContainer // all ordinary containers, in order
	// StaysBurstable, InitTotals and Rounded have the same meaning as in Pod.
	StaysBurstable bool
	InitTotals     InitTotals
	Rounded        resources.List
}

// BoostedContainer is one container of a BoostedPod.
type BoostedContainer struct {
	Current  Container // current resources
	Boosted  bool
	Original Container // resources of a boosted container in its manifest
	Observed bool      // the webhook saw the container at pod creation
}

// BoostInputs are the VPA and LimitRanges of a pod. Zero: no VPA, so boosts end with readiness.
type BoostInputs struct {
	AppliesRecommendation bool // the update mode allows changes of new pods
	Recommendation        map[string]resources.Bounds
	Rules                 Rules
	Ranges                Ranges
}

// BoostResult is the required change of a pod.
type BoostResult struct {
	Expired    []string          // containers with an expired boost, in pod order
	Targets    []ContainerTarget // new resources, may equal the current ones
	NextExpiry time.Duration     // time until the next boost expires, 0 if none
}

// EvaluateBoost returns the required change of a pod at now. Nothing changes until a boost expires.
// Then containers without one get their recommendation as well, as in the reference VPA.
func EvaluateBoost(p BoostedPod, a BoostInputs, now time.Time) BoostResult {
	var v BoostResult
	if !p.Ready {
		return v
	}
	expired := make([]bool, len(p.Containers))
	for i, c := range p.Containers {
		if !c.Boosted {
			continue
		}
		left := a.Rules.For(c.Current.Name).Boost.Duration
		if left > 0 {
			left -= now.Sub(p.ReadySince)
		}
		switch {
		case left < 0 || a.Rules.For(c.Current.Name).Boost.Duration == 0:
			expired[i], v.Expired = true, append(v.Expired, c.Current.Name)
		case v.NextExpiry == 0 || left < v.NextExpiry:
			v.NextExpiry = max(left, time.Millisecond) // at its exact end a boost is still active
		}
	}
	if len(v.Expired) == 0 {
		return v
	}
	for i, f := range fitUnboosted(p, a) {
		c := p.Containers[i]
		switch {
		case expired[i]:
			v.Targets = append(v.Targets, c.withoutBoost(f))
		case !c.Boosted && c.Observed && (!f.Requests.Empty() || !f.Limits.Empty()):
			v.Targets = append(v.Targets, f)
		}
	}
	return v
}

// fitUnboosted fits the original resources, so that limits keep their original proportion.
func fitUnboosted(p BoostedPod, a BoostInputs) []ContainerTarget {
	pod := Pod{Containers: make([]Container, len(p.Containers)), StaysBurstable: p.StaysBurstable, InitTotals: p.InitTotals, Rounded: p.Rounded}
	for i, c := range p.Containers {
		pod.Containers[i] = c.Current
		if c.Boosted {
			pod.Containers[i] = c.original()
		}
	}
	recommendation := a.Recommendation
	if !a.AppliesRecommendation {
		recommendation = nil
	}
	return Fit(pod, recommendation, a.Rules, a.Ranges).Containers
}

func (c BoostedContainer) original() Container {
	u := c.Original
	u.Name, u.Declared = c.Current.Name, c.Current.Declared
	for k := range resources.Kind(resources.Kinds) {
		if !u.Requests.Has(k) && !u.Limits.Has(k) {
			if a, ok := c.Current.Requests.Get(k); ok {
				u.Requests = u.Requests.With(k, a)
			}
			if a, ok := c.Current.Limits.Get(k); ok {
				u.Limits = u.Limits.With(k, a)
			}
		}
	}
	return u
}

// minCPURequest, in millicores, replaces a boosted CPU request without original or recommendation:
// a request cannot be removed from a running pod, and 0 would change the QoS class.
const minCPURequest = 1

// withoutBoost returns the resources after the boost: f, else the original ones, at least for CPU.
func (c BoostedContainer) withoutBoost(f ContainerTarget) ContainerTarget {
	requests, limits := capped(c.Original.Requests, c.Current.Requests), capped(c.Original.Limits, c.Current.Limits)
	if f.Requests.Empty() {
		f.Requests, f.Limits = requests, limits
	}
	if f.Requests.Has(resources.CPU) {
		return f
	}
	if a, ok := requests.Get(resources.CPU); ok {
		f.Requests = f.Requests.With(resources.CPU, a)
	} else if c.Current.Requests.Has(resources.CPU) {
		f.Requests = f.Requests.With(resources.CPU, minCPURequest)
	}
	if a, ok := limits.Get(resources.CPU); ok {
		f.Limits = f.Limits.With(resources.CPU, a)
	}
	return f
}

// capped limits amounts to maxima, where present, so that annotations of a pod cannot enlarge it.
func capped(r, maxima resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		a, ok := r.Get(k)
		if b, bounded := maxima.Get(k); ok && bounded {
			r = r.With(k, min(a, b))
		}
	}
	return r
}
