package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"loadline.dev/loadline/pkg/kube/target"
)

// index finds the VPAs that match a label set. VPAs of one target with equal selectors share a
// matcher, so each selector is evaluated once. A matcher is indexed by one label that its selector
// requires, so most selectors are not evaluated at all.
type index struct {
	byLabel   map[label][]*matcher
	unindexed []*matcher // matchers without a required label
	targets   map[target.Key][]*matcher

	requirementCounts map[string]int // number of requirements by label key
	cursor            cursor         // of the current evaluation, reused
}

func newIndex() index {
	return index{byLabel: map[label][]*matcher{}, targets: map[target.Key][]*matcher{}, requirementCounts: map[string]int{}}
}

type matcher struct {
	selector    labels.Selector
	indexLabels []label // keys in index.byLabel, nil: it is in index.unindexed
	vpas        []*VPA
}

type label struct{ key, value string }

// labelList is sorted by key. It takes a third of the memory of a map.
type labelList []label

// newLabelList returns labels as substrings of text. keys are sorted.
func newLabelList(keys []string, values labels.Set, text string) labelList {
	l := make(labelList, 0, len(values))
	at := 0
	for _, key := range keys {
		value := at + len(key) + 1
		end := value + len(values[key])
		l = append(l, label{text[at : value-1], text[value:end]})
		at = end + 1
	}
	return l
}

func (l labelList) Get(key string) string {
	at, found := slices.BinarySearchFunc(l, key, func(x label, key string) int { return strings.Compare(x.key, key) })
	if !found {
		return ""
	}
	return l[at].value
}

// cursor implements labels.Labels for lookups by ascending key, the order of selector requirements.
// All lookups together take O(labels + requirements).
type cursor struct {
	list labelList
	at   int
}

func (c *cursor) Has(key string) bool {
	_, found := c.Lookup(key)
	return found
}

func (c *cursor) Get(key string) string {
	value, _ := c.Lookup(key)
	return value
}

// Lookup returns the value of a label. A key less than the previous one starts over.
func (c *cursor) Lookup(key string) (value string, found bool) {
	if c.at > 0 && key <= c.list[c.at-1].key {
		c.at = 0
	}
	for c.at < len(c.list) && c.list[c.at].key < key {
		c.at++
	}
	if c.at == len(c.list) || c.list[c.at].key != key {
		return "", false
	}
	return c.list[c.at].value, true
}

func (l labelList) equal(values map[string]string) bool {
	if len(l) != len(values) {
		return false
	}
	for _, x := range l {
		if value, found := values[x.key]; !found || value != x.value {
			return false
		}
	}
	return true
}

func (l labelList) without(keys []string) labels.Set {
	rest := labels.Set{}
	for _, x := range l {
		if !slices.Contains(keys, x.key) {
			rest[x.key] = x.value
		}
	}
	return rest
}

func (x *index) add(v *VPA) {
	if v.selector == nil {
		return
	}
	if _, selectable := v.selector.Requirements(); !selectable {
		return
	}
	for _, m := range x.targets[v.target] {
		if equalSelectors(m.selector, v.selector) {
			m.vpas = append(m.vpas, v)
			v.matcher = m
			return
		}
	}
	v.matcher = &matcher{selector: v.selector, vpas: []*VPA{v}}
	x.insert(v.matcher)
	x.targets[v.target] = append(x.targets[v.target], v.matcher)
}

func (x *index) insert(m *matcher) {
	requirements, _ := m.selector.Requirements()
	fewest := 0
	for i := range requirements {
		x.countRequirement(requirements[i].Key(), 1)
		demanded := acceptedLabels(&requirements[i])
		others := 0
		for _, l := range demanded {
			others += len(x.byLabel[l])
		}
		if len(demanded) > 0 && (m.indexLabels == nil || others < fewest) {
			m.indexLabels, fewest = demanded, others
		}
	}
	if m.indexLabels == nil {
		x.unindexed = append(x.unindexed, m)
		return
	}
	for _, l := range m.indexLabels {
		x.byLabel[l] = append(x.byLabel[l], m)
	}
}

func acceptedLabels(r *labels.Requirement) (demanded []label) {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		for value := range r.Values() {
			demanded = append(demanded, label{r.Key(), value})
		}
	}
	return demanded
}

func (x *index) countRequirement(key string, more int) {
	if x.requirementCounts[key] += more; x.requirementCounts[key] == 0 {
		delete(x.requirementCounts, key)
	}
}

func (x *index) remove(v *VPA) {
	m := v.matcher
	if m == nil {
		return
	}
	v.matcher = nil
	if m.vpas = slices.DeleteFunc(m.vpas, func(other *VPA) bool { return other == v }); len(m.vpas) > 0 {
		return
	}
	requirements, _ := m.selector.Requirements()
	for i := range requirements {
		x.countRequirement(requirements[i].Key(), -1)
	}
	for _, l := range m.indexLabels {
		removeMatcher(x.byLabel, l, m)
	}
	if m.indexLabels == nil {
		x.unindexed = slices.DeleteFunc(x.unindexed, func(other *matcher) bool { return other == m })
	}
	removeMatcher(x.targets, v.target, m)
}

func removeMatcher[K comparable](lists map[K][]*matcher, key K, m *matcher) {
	if others := slices.DeleteFunc(lists[key], func(other *matcher) bool { return other == m }); len(others) > 0 {
		lists[key] = others
	} else {
		delete(lists, key)
	}
}

// matching calls f for each VPA that matches a label set, in no defined order.
func (x *index) matching(set labelList, f func(*VPA)) {
	if len(set) > 0 && set[0].key == "" { // client.Dropped: the labels of the pods are unknown
		return
	}
	visit := func(matchers []*matcher) {
		for _, m := range matchers {
			if x.matches(m, set) {
				for _, v := range m.vpas {
					f(v)
				}
			}
		}
	}
	for _, l := range set {
		visit(x.byLabel[l])
	}
	visit(x.unindexed)
}

func (x *index) matches(m *matcher, set labelList) bool {
	x.cursor = cursor{list: set}
	matched := m.selector.Matches(&x.cursor)
	x.cursor = cursor{}
	return matched
}

// cachedMatches returns a match function that evaluates each selector once per label set.
func (x *index) cachedMatches() func(*VPA, *labelSet) bool {
	type pair struct {
		m   *matcher
		set *labelSet
	}
	known := map[pair]bool{}
	return func(v *VPA, set *labelSet) bool {
		q := pair{v.matcher, set}
		matched, found := known[q]
		if !found {
			matched = v.matcher != nil && x.matches(v.matcher, set.labels)
			known[q] = matched
		}
		return matched
	}
}

// ownerMark separates labels and owner in the text of a label set. No label contains it.
const ownerMark = "\x00"

// ownerOf returns the topmost controller of a pod, or zero if there is none or it is unknown.
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
		delete(m.unresolvedOwners, p)
		return top
	}
	m.unresolvedOwners[p] = controller
	return target.Key{}
}

func (m *Model) resolveOwners(now time.Time) {
	known := map[*pod]target.Key{}
	for p, controller := range m.unresolvedOwners {
		if top, is := m.config.Owners.Top(controller); is {
			known[p] = top
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(known), func(a, b *pod) int {
		return cmp.Or(cmp.Compare(a.set.namespace.name, b.set.namespace.name), cmp.Compare(a.name, b.name))
	}) {
		delete(m.unresolvedOwners, p)
		former := p.set
		if former.accepts(known[p]) {
			continue
		}
		p.stale = true
		m.move(p, m.labelSetFor(former.namespace, former.labels.without(nil), known[p]))
		if p.set == former { // the set had no owner before
			p.stale = false
			continue
		}
		former.countEnded(p.podTemplate)
		m.track(p, now)
		m.retire(former)
	}
}

// accepts reports whether pods of an owner belong to a label set. An unknown owner is accepted.
func (set *labelSet) accepts(owner target.Key) bool {
	return owner == target.Key{} || set.owner == owner
}

func (set *labelSet) labelText() string {
	text, _, _ := strings.Cut(set.text, ownerMark)
	return text
}

// assignOwner sets the owner of a label set without one. It reports whether the owner is accepted.
func (m *Model) assignOwner(set *labelSet, owner target.Key) bool {
	if set.accepts(owner) {
		return true
	}
	if set.owner != (target.Key{}) {
		return false
	}
	set.owner = owner
	s := set.namespace
	if owner.Custom() {
		s.owners[owner]++
		if s.owners[owner] == 1 {
			m.unlinkForeign(s, owner)
		}
	}
	for _, v := range slices.Clone(set.vpas) {
		if !s.owns(v, set) {
			m.unlink(v, set)
		}
	}
	return true
}

func (s *namespaceState) releaseOwner(set *labelSet) {
	if !set.owner.Custom() {
		return
	}
	if s.owners[set.owner]--; s.owners[set.owner] <= 0 {
		delete(s.owners, set.owner)
	}
}

// owns reports whether the target of a VPA owns the matching pods of a label set, by the rule of
// updater and webhook: it is their topmost controller. Pods without a controller belong to every
// target. All pods belong to a custom resource that owns no label set, because its operator does
// not set it as their controller.
func (s *namespaceState) owns(v *VPA, set *labelSet) bool {
	return set.owner == target.Key{} || set.owner == v.target || v.target.Custom() && s.owners[v.target] == 0
}

// unlinkForeign unlinks a custom resource from pods of other owners once it owns a label set.
func (m *Model) unlinkForeign(s *namespaceState, owner target.Key) {
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
