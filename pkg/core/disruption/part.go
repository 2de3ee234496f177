package disruption

import (
	"slices"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/portion"
	"loadline.dev/loadline/pkg/core/room"
)

// capped returns a pod that grows by what there is room for, where that is enough to
// be worth a resize; else nil. What goes beyond the room has its turn when there is more.
func (p *plan) capped(pod *Pod) *Pod {
	if !p.config.CapToRoom {
		return nil
	}
	part := pod.part(p.room.Part(pod.need()))
	need := part.need()
	if p.room.Resize(need) != room.Fits {
		return nil
	}
	for k := range amount.Kind(amount.Kinds) {
		if grown := need.Wants.Value(k) > need.Has.Value(k); grown && relative(k, need.Has.Value(k), need.Wants.Value(k)) >= p.config.Threshold {
			return part
		}
	}
	return nil
}

// part returns a pod that changes by a part of what it should, in millionths for each
// kind.
func (p *Pod) part(of [amount.Kinds]amount.Amount) *Pod {
	part := *p
	part.Containers = slices.Clone(p.Containers)
	for i := range part.Containers {
		c := &part.Containers[i]
		for k, millionths := range of {
			if millionths < portion.Whole {
				c.Fitted = portion.Of(amount.Kind(k), millionths, c.Asked, c.Fitted)
			}
		}
	}
	return &part
}
