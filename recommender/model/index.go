package model

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// index finds the VPAs of a namespace whose selectors may match a label set,
// without asking all of them: each is kept under one label that it demands.
type index struct {
	by   map[label][]*VPA
	rest []*VPA // that demand no certain label

	mentions map[string]int // requirements by label key
}

type label struct{ key, value string }

// list are the labels of pods, sorted by key. It takes a third of what a map
// would take.
type list []label

// newList returns labels, whose keys are sorted, as a list made of their text.
func newList(keys []string, of labels.Set, text string) list {
	l := make(list, 0, len(of))
	at := 0
	for _, key := range keys {
		value := at + len(key) + 1
		end := value + len(of[key])
		l = append(l, label{text[at : value-1], text[value:end]})
		at = end + 1
	}
	return l
}

// Has reports whether there is a label.
func (l list) Has(key string) bool {
	_, found := l.Lookup(key)
	return found
}

// Get returns the value of a label, empty if there is none. The name is that of
// labels.Labels.
func (l list) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// Lookup returns the value of a label and whether there is one.
func (l list) Lookup(key string) (value string, found bool) {
	for i := range l {
		if l[i].key == key {
			return l[i].value, true
		}
	}
	return "", false
}

// equal reports whether the labels are those of a map.
func (l list) equal(of map[string]string) bool {
	if len(l) != len(of) {
		return false
	}
	for _, x := range l {
		if value, found := of[x.key]; !found || value != x.value {
			return false
		}
	}
	return true
}

// without returns the labels whose keys are not among some.
func (l list) without(keys []string) labels.Set {
	rest := labels.Set{}
	for _, x := range l {
		if !slices.Contains(keys, x.key) {
			rest[x.key] = x.value
		}
	}
	return rest
}

// add keeps a VPA under the values of that of its requirements which the fewest
// others share. A selector of nil is not kept.
func (x *index) add(v *VPA) {
	if v.selector == nil {
		return
	}
	requirements, selectable := v.selector.Requirements()
	if !selectable {
		return
	}
	fewest := 0
	for i := range requirements {
		x.mention(requirements[i].Key(), 1)
		demanded := demands(&requirements[i])
		others := 0
		for _, l := range demanded {
			others += len(x.by[l])
		}
		if len(demanded) > 0 && (v.under == nil || others < fewest) {
			v.under, fewest = demanded, others
		}
	}
	if v.under == nil {
		x.rest = append(x.rest, v)
		return
	}
	if x.by == nil {
		x.by = map[label][]*VPA{}
	}
	for _, l := range v.under {
		x.by[l] = append(x.by[l], v)
	}
}

// demands returns the labels of which a requirement demands one.
func demands(r *labels.Requirement) (demanded []label) {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		for value := range r.Values() {
			demanded = append(demanded, label{r.Key(), value})
		}
	}
	return demanded
}

// mention counts a requirement that comes or goes.
func (x *index) mention(key string, more int) {
	if x.mentions == nil {
		x.mentions = map[string]int{}
	}
	if x.mentions[key] += more; x.mentions[key] == 0 {
		delete(x.mentions, key)
	}
}

// remove drops a VPA that was added, and does nothing with one that was not kept.
func (x *index) remove(v *VPA) {
	if v.selector != nil {
		requirements, _ := v.selector.Requirements() // none if nothing is selectable
		for i := range requirements {
			x.mention(requirements[i].Key(), -1)
		}
	}
	same := func(other *VPA) bool { return other == v }
	for _, l := range v.under {
		if others := slices.DeleteFunc(x.by[l], same); len(others) > 0 {
			x.by[l] = others
		} else {
			delete(x.by, l)
		}
	}
	if v.under == nil {
		x.rest = slices.DeleteFunc(x.rest, same)
	}
	v.under = nil
}

// matching calls f for each VPA whose selector matches a label set, in no order.
func (x *index) matching(set list, f func(*VPA)) {
	for _, l := range set {
		for _, v := range x.by[l] {
			if v.selector.Matches(set) {
				f(v)
			}
		}
	}
	for _, v := range x.rest {
		if v.selector.Matches(set) {
			f(v)
		}
	}
}
