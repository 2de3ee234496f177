package model

import (
	"slices"

	"loadline.dev/loadline/pkg/core/sketch"
)

// LimitRatio returns how large the memory limit of a container of v is for its request:
// the tightest among the pods that v selects, finished ones left out. Where v leaves
// limits alone, none follows the request.
func (v *VPA) LimitRatio(container string) sketch.LimitRatio {
	if v.Rules.For(container).RequestsOnly {
		return sketch.Free
	}
	var tightest sketch.LimitRatio
	var last *form // nearly always, all pods have the same
	for set := range v.sets {
		for _, p := range set.pods {
			if p.finished || p.form == last {
				continue
			}
			last = p.form
			if at := slices.Index(p.containers, container); at >= 0 {
				tightest = tightest.Tighter(p.limitRatio[at])
			}
		}
	}
	return tightest
}
