package convert

import (
	"slices"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Mode returns the update mode of a VPA: Recreate where it says nothing.
func Mode(vpa *vpav1.VerticalPodAutoscaler) vpav1.UpdateMode {
	p := vpa.Spec.UpdatePolicy
	if p == nil || p.UpdateMode == nil || *p.UpdateMode == "" {
		return vpav1.UpdateModeRecreate
	}
	return *p.UpdateMode
}

// HasBoost reports whether a VPA has a startup boost, for the pod or for any
// container.
func HasBoost(vpa *vpav1.VerticalPodAutoscaler) bool {
	if hasBoost(vpa.Spec.StartupBoost) {
		return true
	}
	return slices.ContainsFunc(containerPolicies(vpa), func(c vpav1.ContainerResourcePolicy) bool { return hasBoost(c.StartupBoost) })
}

// BoostDuration returns for how long the startup boost of a container lasts once its pod is
// ready, 0 if it has none.
func BoostDuration(vpa *vpav1.VerticalPodAutoscaler, container string) time.Duration {
	b := vpa.Spec.StartupBoost
	if own := ContainerPolicy(vpa, container); own != nil && hasBoost(own.StartupBoost) {
		b = own.StartupBoost
	}
	return boost(b).Duration
}

func hasBoost(b *vpav1.StartupBoost) bool { return b != nil && b.CPU != nil }

func containerPolicies(vpa *vpav1.VerticalPodAutoscaler) []vpav1.ContainerResourcePolicy {
	if vpa.Spec.ResourcePolicy == nil {
		return nil
	}
	return vpa.Spec.ResourcePolicy.ContainerPolicies
}

// ContainerPolicy returns the policy of a container as its VPA has it, nil if
// there is none: the first entry with its name, else the last wildcard.
func ContainerPolicy(vpa *vpav1.VerticalPodAutoscaler, container string) *vpav1.ContainerResourcePolicy {
	var found *vpav1.ContainerResourcePolicy
	policies := containerPolicies(vpa)
	for i := range policies {
		switch policies[i].ContainerName {
		case container:
			return &policies[i]
		case vpav1.DefaultContainerResourcePolicy:
			found = &policies[i]
		}
	}
	return found
}

// policies are the container policies of a VPA, for many containers.
type policies struct {
	named    names[vpav1.ContainerResourcePolicy]
	wildcard *vpav1.ContainerResourcePolicy
}

func readPolicies(vpa *vpav1.VerticalPodAutoscaler) policies {
	all := containerPolicies(vpa)
	p := policies{named: byName(all, func(p *vpav1.ContainerResourcePolicy) string { return p.ContainerName })}
	for i := range all {
		if all[i].ContainerName == vpav1.DefaultContainerResourcePolicy {
			p.wildcard = &all[i]
		}
	}
	return p
}

// of is ContainerPolicy.
func (p *policies) of(container string) *vpav1.ContainerResourcePolicy {
	if found := p.named.find(container); found != nil {
		return found
	}
	return p.wildcard
}

// Rules reads the policies of a VPA. Controlled resources that are absent mean
// CPU and memory; an empty list means none. A startupBoost without cpu is
// treated as absent. Whether memory limits follow requests is in its status.
func Rules(vpa *vpav1.VerticalPodAutoscaler) policy.Rules {
	policies := containerPolicies(vpa)
	rules := policy.Rules{Boost: boost(vpa.Spec.StartupBoost), Entries: make([]policy.Entry, 0, len(policies)), SeparateMemoryLimit: HasSeparateMemoryLimit(&vpa.Status), KeepsClass: keepsClass(vpa)}
	for _, c := range policies {
		rules.Entries = append(rules.Entries, policy.Entry{
			Container: c.ContainerName,
			Rule:      rule(c),
			OwnBoost:  hasBoost(c.StartupBoost),
		})
	}
	return rules
}

// keepsClass reports whether running pods of a VPA are resized in place, because of its mode or because the VPA
// is generated for a SizingPolicy.
func keepsClass(vpa *vpav1.VerticalPodAutoscaler) bool {
	switch Mode(vpa) {
	case vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlace:
		return true
	}
	return MadeForPolicy(vpa)
}

func rule(c vpav1.ContainerResourcePolicy) policy.Rule {
	r := policy.Default()
	r.Off = c.Mode != nil && *c.Mode == vpav1.ContainerScalingModeOff
	r.RequestsOnly = c.ControlledValues != nil && *c.ControlledValues == vpav1.ContainerControlledValuesRequestsOnly
	r.Min, r.Max = Resources(c.MinAllowed), Resources(c.MaxAllowed)
	r.Boost = boost(c.StartupBoost)
	if c.ControlledResources != nil {
		for k := range resources.Kind(resources.Kinds) {
			r.Controlled[k] = slices.Contains(*c.ControlledResources, ResourceName(k))
		}
	}
	return r
}

// boost reads a startup boost. Without a type it is a factor, as in the
// reference VPA; with an unknown one it is none.
func boost(b *vpav1.StartupBoost) policy.Boost {
	if !hasBoost(b) {
		return policy.Boost{}
	}
	var read policy.Boost
	switch b.CPU.Type {
	case "", vpav1.StartupBoostTypeFactor:
		read.Type = policy.BoostFactor
	case vpav1.StartupBoostTypeQuantity:
		read.Type = policy.BoostQuantity
	}
	if b.CPU.Factor != nil {
		read.Factor = int64(*b.CPU.Factor)
	}
	if b.CPU.Quantity != nil {
		read.Quantity = Amount(resources.CPU, *b.CPU.Quantity)
	}
	if b.CPU.DurationSeconds != nil {
		read.Duration = time.Duration(*b.CPU.DurationSeconds) * time.Second
	}
	return read
}

// few is how many items are searched faster one by one.
const few = 8

// names finds items by their name; of several with one the first counts. The items are
// searched once, not for each question.
type names[T any] struct {
	items []T
	name  func(*T) string
	found map[string]*T // of many items
}

func byName[T any](items []T, name func(*T) string) names[T] {
	n := names[T]{items: items, name: name}
	if len(items) <= few {
		return n
	}
	n.found = make(map[string]*T, len(items))
	for i := range items {
		if at := name(&items[i]); n.found[at] == nil {
			n.found[at] = &items[i]
		}
	}
	return n
}

// find returns nil if there is no such item.
func (n *names[T]) find(wanted string) *T {
	if n.found != nil {
		return n.found[wanted]
	}
	for i := range n.items {
		if n.name(&n.items[i]) == wanted {
			return &n.items[i]
		}
	}
	return nil
}
