package disruption

import (
	"slices"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Guaranteed reports whether containers, all of their pod, make it one of class Guaranteed.
func Guaranteed(containers []policy.Container) bool {
	return policy.ClassOf(containers) == policy.Guaranteed
}

// ChangesClass reports whether the change would give the pod another class, which
// cannot be done to one that runs.
func (p *Pod) ChangesClass() bool {
	has, gets := p.classes()
	return has != gets
}

// classes are the class of the pod, and the one that its change would give it.
func (p *Pod) classes() (has, gets policy.Class) {
	before := make([]policy.Container, 0, len(p.Containers)+len(p.Fixed))
	before = append(before, p.Fixed...)
	after := append(make([]policy.Container, 0, cap(before)), p.Fixed...)
	for i := range p.Containers {
		before = append(before, p.Containers[i].Spec)
		after = append(after, p.Containers[i].After())
	}
	return policy.ClassOf(before), policy.ClassOf(after)
}

// CPURefused reports whether the node would refuse the change for its CPU. Under the static
// policy a pod of class Guaranteed keeps what it has been given for as long as it
// runs, also where that is a share and no whole CPUs.
func (p *Pod) CPURefused() bool {
	if !p.Static || !slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.After().Requests.Value(resources.CPU) != c.Actual.Requests.Value(resources.CPU)
	}) {
		return false
	}
	has, _ := p.classes()
	return has == policy.Guaranteed
}
