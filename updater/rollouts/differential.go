package rollouts

import "k8s.io/client-go/tools/cache"

// Turned and MarkStored are for the differential test alone, and go with it.

// Turned reports whether Save would store the state.
func (h *Hold) Turned() bool { return h.turned() }

// MarkStored marks the states of these VPAs as stored.
func (h *Holds) MarkStored(names map[cache.ObjectName]bool) {
	for name, hold := range h.holds {
		if hold != nil && names[name] {
			hold.stored = true
		}
	}
}
