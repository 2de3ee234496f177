package model

import "slices"

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
		for _, p := range set.pods {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return names
}
