package feed

import (
	"slices"

	"loadline.dev/loadline/pkg/core/trail"
)

// Headroom returns how large the memory limit of a container of v is for its request:
// the tightest among the pods that v selects, finished ones left out. Where v leaves
// limits alone, none follows the request.
func (v *VPA) Headroom(container string) trail.Headroom {
	if v.Rules.For(container).RequestsOnly {
		return trail.Free
	}
	var tightest trail.Headroom
	var last *form // nearly always, all pods have the same
	for set := range v.sets {
		for _, p := range set.pods {
			if p.finished || p.form == last {
				continue
			}
			last = p.form
			if at := slices.Index(p.containers, container); at >= 0 {
				tightest = tightest.Tighter(p.headroom[at])
			}
		}
	}
	return tightest
}
