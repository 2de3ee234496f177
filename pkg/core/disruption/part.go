package disruption

import (
	"loadline.dev/loadline/pkg/core/capacity"
	"loadline.dev/loadline/pkg/core/resources"
)

// capped returns a pod that grows by what there is room for, where that is enough to
// be worth a resize; else nil. What goes beyond the room has its turn when there is more.
func (p *plan) capped(pod *Pod) *Pod {
	if !p.config.CapToRoom {
		return nil
	}
	part := pod.Part(p.room.Part(pod.Need()))
	need := part.Need()
	if p.room.Resize(need) != capacity.Fits {
		return nil
	}
	for k := range resources.Kind(resources.Kinds) {
		if grown := need.Wants.Value(k) > need.Has.Value(k); grown && Relative(k, need.Has.Value(k), need.Wants.Value(k)) >= p.config.Threshold {
			return part
		}
	}
	return nil
}

// noRoom is the reason for an answer.
func noRoom(a capacity.Answer) Reason {
	switch a {
	case capacity.Full:
		return NodeFull
	case capacity.TooLarge:
		return TooLargeForNode
	case capacity.OverQuota:
		return QuotaFull
	}
	return ""
}
