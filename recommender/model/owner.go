package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/kube/target"
)

// ownerMark separates labels and owner in the text of a label set. No label contains it.
const ownerMark = "\x00"

// ownerOf returns the topmost controller of a pod; zero: it has none, or it is not known yet.
func (m *Model) ownerOf(p *pod, object *corev1.Pod) (top target.Key) {
	if m.config.Owners == nil {
		return top
	}
	controller, owned := target.Controller(object.Namespace, object.OwnerReferences)
	if !owned {
		return top
	}
	top, known := m.config.Owners.Top(controller)
	if known {
		delete(m.unsettled, p)
		return top
	}
	m.unsettled[p] = controller
	return target.Key{}
}

// settle gives pods the owners that have become known.
func (m *Model) settle(now time.Time) {
	known := map[*pod]target.Key{}
	for p, controller := range m.unsettled {
		if top, is := m.config.Owners.Top(controller); is {
			known[p] = top
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(known), func(a, b *pod) int {
		return cmp.Or(cmp.Compare(a.set.space.name, b.set.space.name), cmp.Compare(a.name, b.name))
	}) {
		delete(m.unsettled, p)
		former := p.set
		if former.accepts(known[p]) {
			continue
		}
		p.stale = true
		m.move(p, m.set(former.space, former.labels.without(nil), known[p]))
		if p.set == former { // it had no owner so far
			p.stale = false
			continue
		}
		former.leave(p.form)
		m.track(p, now)
		m.retire(former)
	}
}

// accepts reports whether pods of an owner are in a label set. One that is not known changes nothing.
func (set *labelSet) accepts(owner target.Key) bool {
	return owner == target.Key{} || set.owner == owner
}

// plain returns the text of the labels alone.
func (set *labelSet) plain() string {
	text, _, _ := strings.Cut(set.text, ownerMark)
	return text
}

// give makes a workload the owner of a label set that has none, and reports whether it is the owner.
func (m *Model) give(set *labelSet, owner target.Key) bool {
	if set.accepts(owner) {
		return true
	}
	if set.owner != (target.Key{}) {
		return false
	}
	set.owner = owner
	s := set.space
	if owner.Custom() {
		s.owners[owner]++
		if s.owners[owner] == 1 {
			m.narrow(s, owner)
		}
	}
	for _, v := range slices.Clone(set.vpas) {
		if !s.owns(v, set) {
			m.unlink(v, set)
		}
	}
	return true
}

// disown takes a label set that is dropped from its owner.
func (s *space) disown(set *labelSet) {
	if !set.owner.Custom() {
		return
	}
	if s.owners[set.owner]--; s.owners[set.owner] <= 0 {
		delete(s.owners, set.owner)
	}
}

// owns reports whether the pods of a label set that the selector of a VPA matches belong to the target of
// the VPA, by the rule of updater and webhook: their topmost controller is the target. Pods without
// controller belong to every target that selects them. So do all pods for a custom resource that none of
// them names: its operator does not write itself as their controller.
func (s *space) owns(v *VPA, set *labelSet) bool {
	return set.owner == target.Key{} || set.owner == v.target || v.target.Custom() && s.owners[v.target] == 0
}

// narrow takes from the VPAs of a custom resource the pods of others, now that its own name it.
func (m *Model) narrow(s *space, owner target.Key) {
	for _, v := range s.vpas {
		if v.target != owner {
			continue
		}
		for set := range maps.Clone(v.sets) {
			if !s.owns(v, set) {
				m.unlink(v, set)
			}
		}
	}
}
