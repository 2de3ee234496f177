package feed

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
}

type label struct{ key, value string }

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

func (x *index) remove(v *VPA) {
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
func (x *index) matching(set labels.Set, f func(*VPA)) {
	for key, value := range set {
		for _, v := range x.by[label{key, value}] {
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
