package convert

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
)

// Recommendation reads the recommendation in a VPA's status by container name.
// A name that occurs twice keeps its first entry. Nil gives an empty map.
func Recommendation(r *vpav1.RecommendedPodResources) map[string]resources.Bounds {
	if r == nil {
		return nil
	}
	bounds := make(map[string]resources.Bounds, len(r.ContainerRecommendations))
	for _, c := range r.ContainerRecommendations {
		if _, seen := bounds[c.ContainerName]; !seen {
			bounds[c.ContainerName] = Bounds(c)
		}
	}
	return bounds
}

// Bounds reads one container's recommendation.
func Bounds(c vpav1.RecommendedContainerResources) resources.Bounds {
	return resources.Bounds{
		Lower:  Resources(c.LowerBound),
		Target: Resources(c.Target),
		Upper:  Resources(c.UpperBound),
	}
}

// Format is how a recommender prints amounts before it caps them.
type Format struct {
	// CPUStep in millicores and MemoryStep in bytes: amounts are rounded up to a
	// multiple. 1 and below leave them as they are.
	CPUStep, MemoryStep int64
	// HumanizeMemory prints memory with two decimals in the largest binary unit
	// that is not above the value. The decimals are parsed again, so that the
	// quantity can hold fractions of a byte, as with the reference recommender.
	HumanizeMemory bool
}

// List prints Resources; nil if there are none.
func (f Format) List(r resources.List) corev1.ResourceList {
	if r.Empty() {
		return nil
	}
	list := make(corev1.ResourceList, resources.Kinds)
	for k := range resources.Kind(resources.Kinds) {
		if a, ok := r.Get(k); ok {
			list[ResourceName(k)] = f.Quantity(k, a)
		}
	}
	return list
}

// Quantity prints one amount.
func (f Format) Quantity(k resources.Kind, a resources.Amount) resource.Quantity {
	if k == resources.CPU {
		return Quantity(k, a.RoundUp(f.CPUStep))
	}
	a = a.RoundUp(f.MemoryStep)
	if !f.HumanizeMemory {
		return Quantity(k, a)
	}
	return humanized(a)
}

func humanized(a resources.Amount) resource.Quantity {
	size, suffix := resources.Amount(1), ""
	for _, unit := range [...]string{"Ki", "Mi", "Gi", "Ti"} {
		if a < size<<10 {
			break
		}
		size, suffix = size<<10, unit
	}
	if suffix == "" {
		return Quantity(resources.Memory, a)
	}
	q, err := resource.ParseQuantity(fmt.Sprintf("%.2f%s", float64(a)/float64(size), suffix))
	if err != nil { // cannot happen: the text is a decimal number with a known unit
		return Quantity(resources.Memory, a)
	}
	return q
}
