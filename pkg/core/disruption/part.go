package disruption

import (
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
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
// kind. Requests and limits keep their proportion, and stay within what LimitRanges
// allow, because both ends do.
func (p *Pod) part(of [amount.Kinds]amount.Amount) *Pod {
	part := *p
	part.Containers = make([]Container, len(p.Containers))
	for i := range p.Containers {
		c := p.Containers[i]
		for k, millionths := range of {
			if millionths < room.Whole {
				between(amount.Kind(k), millionths, &c)
			}
		}
		part.Containers[i] = c
	}
	return &part
}

// between moves what the container would get of kind k back towards what it has.
func between(k amount.Kind, millionths amount.Amount, c *Container) {
	move := func(wanted, has amount.Resources) amount.Resources {
		to, ok := wanted.Get(k)
		if !ok {
			return wanted
		}
		from := has.Value(k)
		if to >= from {
			by, _ := (to - from).Proportion(millionths, room.Whole)
			return wanted.With(k, from+by)
		}
		by, _ := (from - to).ProportionUp(millionths, room.Whole) // together the containers take no more than their part
		return wanted.With(k, from-by)
	}
	c.Fitted = policy.Fitted{Name: c.Fitted.Name, Bounds: c.Fitted.Bounds, Notes: c.Fitted.Notes,
		Requests: move(c.Fitted.Requests, c.Asked.Requests), Limits: move(c.Fitted.Limits, c.Asked.Limits)}
}
