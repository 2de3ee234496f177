package disruption

import (
	"slices"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// class is the quality-of-service class of a pod.
type class uint8

const (
	bestEffort class = iota
	burstable
	guaranteed
)

// classOf returns the class that containers give their pod.
func classOf(containers []policy.Container) class {
	sized, equal := false, true
	for _, c := range containers {
		for k := range resources.Kind(resources.Kinds) {
			request, limit := c.Requests.Value(k), c.Limits.Value(k)
			sized = sized || request > 0 || limit > 0
			equal = equal && limit > 0 && (request == limit || !c.Requests.Has(k))
		}
	}
	switch {
	case !sized:
		return bestEffort
	case equal:
		return guaranteed
	}
	return burstable
}

// Guaranteed reports whether containers, all of their pod, make it one of class Guaranteed.
func Guaranteed(containers []policy.Container) bool { return classOf(containers) == guaranteed }

// ChangesClass reports whether the change would give the pod another class, which
// cannot be done to one that runs.
func (p *Pod) ChangesClass() bool {
	has, gets := p.classes()
	return has != gets
}

// classes are the class of the pod, and the one that its change would give it.
func (p *Pod) classes() (has, gets class) {
	before := make([]policy.Container, 0, len(p.Containers)+len(p.Fixed))
	before = append(before, p.Fixed...)
	after := append(make([]policy.Container, 0, cap(before)), p.Fixed...)
	for i := range p.Containers {
		before = append(before, p.Containers[i].Asked)
		after = append(after, p.Containers[i].After())
	}
	return classOf(before), classOf(after)
}

// CPURefused reports whether the node would refuse the change for its CPU. Under the static
// policy a pod of class Guaranteed keeps what it has been given for as long as it
// runs, also where that is a share and no whole CPUs.
func (p *Pod) CPURefused() bool {
	if !p.Static || !slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.After().Requests.Value(resources.CPU) != c.Current.Requests.Value(resources.CPU)
	}) {
		return false
	}
	has, _ := p.classes()
	return has == guaranteed
}
