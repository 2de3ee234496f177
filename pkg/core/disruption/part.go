package disruption

import (
	"loadline.dev/loadline/pkg/core/present"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/room"
)

// capped returns a pod that grows by what there is room for, where that is enough to
// be worth a resize; else nil. What goes beyond the room has its turn when there is more.
func (p *plan) capped(pod *present.Pod) *present.Pod {
	if !p.config.CapToRoom {
		return nil
	}
	part := pod.Part(p.room.Part(pod.Need()))
	need := part.Need()
	if p.room.Resize(need) != room.Fits {
		return nil
	}
	for k := range resources.Kind(resources.Kinds) {
		if grown := need.Wants.Value(k) > need.Has.Value(k); grown && present.Relative(k, need.Has.Value(k), need.Wants.Value(k)) >= p.config.Threshold {
			return part
		}
	}
	return nil
}

// noRoom is the reason for an answer.
func noRoom(a room.Answer) Reason {
	switch a {
	case room.Full:
		return NodeFull
	case room.TooLarge:
		return TooLargeForNode
	case room.OverQuota:
		return QuotaFull
	}
	return ""
}
