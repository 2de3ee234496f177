package disruption

import (
	"slices"

	"loadline.dev/loadline/pkg/core/amount"
)

// givesMemory tells whether a resize takes memory from a container. A kubelet
// refuses that while the memory is in use, or while it does not know the usage
// yet, and tries again by itself: no reason to evict a pod that works, which
// would come back with less than it uses.
func (p *Pod) givesMemory() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		asked, limited := c.Asked.Limits.Get(amount.Memory)
		return limited && asked < c.Current.Limits.Value(amount.Memory)
	})
}
