package usage

import "loadline.dev/loadline/pkg/core/resources"

// maxWithoutNodes are the ends of the histograms, in millicores and bytes.
var maxWithoutNodes = [resources.Kinds]resources.Amount{resources.CPU: 1_000_000, resources.Memory: 1e12}

// MaxOn returns the most that a container can use of a kind on a node of some capacity; 0: the capacity is not
// known, and the end of the histogram counts. CPU use is measured as a rate and may appear a tenth higher than it is.
func MaxOn(k resources.Kind, capacity resources.Amount) resources.Amount {
	switch {
	case capacity <= 0:
		return maxWithoutNodes[k]
	case k == resources.CPU:
		return capacity.Add(capacity / 10)
	}
	return capacity
}
