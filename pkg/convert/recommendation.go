package convert

import (
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

// RaisesMemory reports whether a status recommends more memory for a container than an earlier one:
// a larger request, or where limits do not follow requests a larger limit.
func RaisesMemory(earlier, status *vpav1.VerticalPodAutoscalerStatus) bool {
	if status.Recommendation == nil {
		return false
	}
	separate := HasSeparateMemoryLimit(status)
	before := Recommendation(earlier.Recommendation)
	for name, bounds := range Recommendation(status.Recommendation) {
		if bounds.Target.Value(resources.Memory) > before[name].Target.Value(resources.Memory) ||
			separate && bounds.Upper.Value(resources.Memory) > before[name].Upper.Value(resources.Memory) {
			return true
		}
	}
	return false
}
