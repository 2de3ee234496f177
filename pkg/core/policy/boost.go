package policy

import (
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// BoostType is how a startup boost is computed.
type BoostType uint8

// The boost types. A boost without a type acts as Factor in the reference VPA, so package convert makes it one.
const (
	NoBoost BoostType = iota
	BoostFactor
	BoostQuantity
)

// Boost is extra CPU while a container starts.
type Boost struct {
	Type     BoostType
	Factor   int64            // for BoostFactor, at least 1
	Quantity resources.Amount // for BoostQuantity, in millicores
	Duration time.Duration    // how long after the pod became ready
}

// ErrBoost is the error of a boost that cannot be computed.
var ErrBoost = errors.New("startup boost cannot be computed")

// Boosted returns f with the CPU of c boosted as r demands; the boosted request is at most the given amount of
// millicores unless that is 0. The base is the request in f, or else the current request of c. maxAllowed does not hold
// for a boost, and Ranges.Admit cuts it to LimitRanges. Without a boost, or for a container that is Off, f is returned
// as it is.
func (r Rule) Boosted(c Container, f ContainerTarget, most resources.Amount) (ContainerTarget, error) {
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
	if most > 0 {
		boosted = min(boosted, most)
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

// belowLimit keeps a boosted request one millicore below a fixed limit, where that leaves anything.
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
	// StaysBurstable, Unsized and Rounded have the same meaning as in Pod.
	StaysBurstable bool
	Unsized        Unsized
	Rounded        resources.List
}

// BoostedContainer is one container of a Pod.
type BoostedContainer struct {
	Current  Container // what it has
	Boosted  bool
	Original Container // what a boosted container was written with
	Observed bool      // the webhook saw it when the pod was created
}

// BoostAdvice is what the VPA of a pod says. The zero value is that of a pod without
// a VPA: every boost is over as soon as the pod is ready.
type BoostAdvice struct {
	Sizes          bool // the update mode lets new pods be sized
	Recommendation map[string]resources.Bounds
	Rules          Rules
	Ranges         Ranges
}

// BoostVerdict is what is to be done about a pod.
type BoostVerdict struct {
	Over []string          // boosted containers whose boost is over, in the order of the pod
	Give []ContainerTarget // what containers get now; may repeat what they have
	Wait time.Duration     // until the next boost is over; 0: none is known
}

// JudgeBoost returns what is to be done at now. As long as no boost is over, nothing is given. With the first that
// ends, the containers without a boost get what is recommended for them, too, as in the reference VPA.
func JudgeBoost(p BoostedPod, a BoostAdvice, now time.Time) BoostVerdict {
	var v BoostVerdict
	if !p.Ready {
		return v
	}
	over := make([]bool, len(p.Containers))
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
			over[i], v.Over = true, append(v.Over, c.Current.Name)
		case v.Wait == 0 || left < v.Wait:
			v.Wait = max(left, time.Millisecond) // at the very end it is not over yet
		}
	}
	if len(v.Over) == 0 {
		return v
	}
	for i, f := range fitUnboosted(p, a) {
		c := p.Containers[i]
		switch {
		case over[i]:
			v.Give = append(v.Give, c.withoutBoost(f))
		case !c.Boosted && c.Observed && (!f.Requests.Empty() || !f.Limits.Empty()):
			v.Give = append(v.Give, f)
		}
	}
	return v
}

// fitUnboosted returns what the VPA gives to containers as they were written: their
// limits keep the proportion that they had then.
func fitUnboosted(p BoostedPod, a BoostAdvice) []ContainerTarget {
	pod := Pod{Containers: make([]Container, len(p.Containers)), StaysBurstable: p.StaysBurstable, Unsized: p.Unsized, Rounded: p.Rounded}
	for i, c := range p.Containers {
		pod.Containers[i] = c.Current
		if c.Boosted {
			pod.Containers[i] = c.unboosted()
		}
	}
	recommendation := a.Recommendation
	if !a.Sizes {
		recommendation = nil
	}
	return Fit(pod, recommendation, a.Rules, a.Ranges).Containers
}

// unboosted is the container as it was written, where that is known.
func (c BoostedContainer) unboosted() Container {
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

// least is the CPU request, in millicores, of a container that had none and for which none is recommended. A request
// cannot be taken away from a running pod, and 0 would change its class.
const least = 1

// withoutBoost is what the container gets from f when its boost is over: without
// any recommendation what was written, and at least the CPU of that.
func (c BoostedContainer) withoutBoost(f ContainerTarget) ContainerTarget {
	requests, limits := atMost(c.Original.Requests, c.Current.Requests), atMost(c.Original.Limits, c.Current.Limits)
	if f.Requests.Empty() {
		f.Requests, f.Limits = requests, limits
	}
	if f.Requests.Has(resources.CPU) {
		return f
	}
	if a, ok := requests.Get(resources.CPU); ok {
		f.Requests = f.Requests.With(resources.CPU, a)
	} else if c.Current.Requests.Has(resources.CPU) {
		f.Requests = f.Requests.With(resources.CPU, least)
	}
	if a, ok := limits.Get(resources.CPU); ok {
		f.Limits = f.Limits.With(resources.CPU, a)
	}
	return f
}

// atMost cuts amounts to those of most, where it has them: what a pod says of itself must not make it larger.
func atMost(r, most resources.List) resources.List {
	for k := range resources.Kind(resources.Kinds) {
		a, ok := r.Get(k)
		if b, bounded := most.Get(k); ok && bounded {
			r = r.With(k, min(a, b))
		}
	}
	return r
}
