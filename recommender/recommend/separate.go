package recommend

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// Where memory limits do not follow the requests, the upper bound of memory is what a limit
// protects, and no bound: it is published, held and saved like a target.

// asSeparate returns what was published in the meaning that it has now. Where limits followed
// the requests, they protected the target; where they do again, what they protected is the target.
func asSeparate(before status.Recommended, was, is bool) status.Recommended {
	if was == is {
		return before
	}
	if is {
		before.UpperBound = withMemory(before.UpperBound, before.Target)
		return before
	}
	before.Target = withMemory(before.Target, before.UpperBound)
	before.UncappedTarget = before.Target
	return before
}

// heldApart returns what was published with the larger amounts of memory of that and of what is
// recommended now, in case memory is held: a kill raises what a limit protects also while the
// request would be lower.
func heldApart(before, now status.Recommended, doubted bool) status.Recommended {
	if !doubted {
		return before
	}
	before.Target = withMoreMemory(before.Target, now.Target)
	before.LowerBound = withMoreMemory(before.LowerBound, now.LowerBound)
	before.UpperBound = withMoreMemory(before.UpperBound, now.UpperBound)
	before.UncappedTarget = withMoreMemory(before.UncappedTarget, now.UncappedTarget)
	return before
}

// withMemory returns a list with the memory of another, if that has some.
func withMemory(list, from corev1.ResourceList) corev1.ResourceList {
	q, found := from[corev1.ResourceMemory]
	if !found {
		return list
	}
	return put(list, q)
}

// withMoreMemory returns a list with the memory of another, if both have some and that is more.
func withMoreMemory(list, from corev1.ResourceList) corev1.ResourceList {
	q, found := from[corev1.ResourceMemory]
	if has, some := list[corev1.ResourceMemory]; !found || !some || q.Cmp(has) <= 0 {
		return list
	}
	return put(list, q)
}

// put leaves the list as it is: it may be that of an object in a cache.
func put(list corev1.ResourceList, memory resource.Quantity) corev1.ResourceList {
	list = maps.Clone(list)
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourceMemory] = memory
	return list
}

// separateMessage says what the bounds mean, and which requests stay with their limits. It
// does not change while that does not.
func separateMessage(v *model.VPA, recommended []status.Recommended) string {
	var equal []string
	for _, c := range recommended {
		t := v.Sketches[c.ContainerName]
		if t == nil {
			continue
		}
		if ratio, some := t.LimitRatio.Ratio(); some && ratio <= 1 {
			equal = append(equal, c.ContainerName)
		}
	}
	message := "memory requests follow use; a memory limit is the upper bound x declared limit / declared request"
	if len(equal) > 0 {
		message += fmt.Sprintf("; the request stays with the limit, which equals it, of: %s", strings.Join(equal, ", "))
	}
	return message
}
