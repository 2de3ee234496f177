package feed

import (
	"maps"
	"slices"
)

// Selector returns the text of the label selector of v; empty if it selects
// nothing.
func (v *VPA) Selector() string {
	if v.selector == nil {
		return ""
	}
	return v.selector.String()
}

// PodNames returns the names of the pods that v selects, sorted, finished ones
// included.
func (v *VPA) PodNames() []string {
	var names []string
	for set := range v.sets {
		names = slices.AppendSeq(names, maps.Keys(set.pods))
	}
	slices.Sort(names)
	return names
}
