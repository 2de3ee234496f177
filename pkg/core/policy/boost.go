package policy

import (
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// BoostType is how a startup boost is computed.
type BoostType uint8

// The boost types. A boost without a type acts as Factor in the reference VPA,
// so package convert makes it one.
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

// Boosted returns f with the CPU of c boosted as r demands; the boosted
// request is at most the given amount of millicores unless that is 0. The
// base is the request in f, or else the current request of c. maxAllowed does not hold for
// a boost, and Ranges.Admit cuts it to LimitRanges. Without a boost, or for a container that
// is Off, f is returned as it is.
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

// belowLimit keeps a boosted request one millicore below a fixed limit, where
// that leaves anything.
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
