package disruption

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// Distance is how far a pod is from what it would get.
type Distance struct {
	OutOfBounds bool    // a request is missing or outside the recommended bounds
	Grows       bool    // a request is missing or below its target
	Change      float64 // relative change of the pod's sums, added up over the kinds
}

// Distance follows from the amounts. Containers that the webhook did not see do not
// count. The sums run over whole pods, so opposite changes of two containers cancel
// out, as in the reference VPA.
func (p *Pod) Distance() Distance {
	var a Distance
	var sized [resources.Kinds]bool
	var requests, targets [resources.Kinds]resources.Amount
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.Observed || !c.Recommended() {
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			target, ok := c.Fitted.Bounds.Target.Get(k)
			if !ok {
				continue
			}
			request, has := c.Current.Requests.Get(k)
			sized[k] = true
			requests[k], targets[k] = requests[k].Add(request), targets[k].Add(target)
			a.Grows = a.Grows || !has || target > request
			a.OutOfBounds = a.OutOfBounds || !has || outside(c.Fitted.Bounds, k, request)
		}
	}
	for k, counts := range sized {
		if counts {
			a.Change += Relative(resources.Kind(k), requests[k], targets[k])
		}
	}
	return a
}

func outside(b resources.Bounds, k resources.Kind, request resources.Amount) bool {
	lower, hasLower := b.Lower.Get(k)
	upper, hasUpper := b.Upper.Get(k)
	return hasLower && request < lower || hasUpper && request > upper
}

// Relative is the change from a to b in relation to a. Both are taken in
// thousandths of their unit, and a is at least one of them, as in the reference
// VPA: a pod without requests changes hugely.
func Relative(k resources.Kind, a, b resources.Amount) float64 {
	if k == resources.Memory {
		a, _ = a.Proportion(1000, 1)
		b, _ = b.Proportion(1000, 1)
	}
	a = max(a, 1)
	return float64(max(a-b, b-a)) / float64(a)
}
