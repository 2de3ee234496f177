package convert

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// Format is the number format of a recommender.
type Format struct {
	// CPUStep (millicores) and MemoryStep (bytes) round up to a multiple. 1 and below do not round.
	CPUStep, MemoryStep int64
	// HumanizeMemory prints memory with two decimals in the largest binary unit up to the value.
	// The quantity can then hold fractions of a byte, as with the reference recommender.
	HumanizeMemory bool
}

// List prints resources, nil if there are none.
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
	if err != nil { // impossible, the text is valid
		return Quantity(resources.Memory, a)
	}
	return q
}

// Printer prints the resources of many containers of one VPA and namespace.
type Printer struct {
	recommended nameIndex[vpav1.RecommendedContainerResources]
	policies    policyIndex
	ranges      LimitRanges
}

// NewPrinter returns a Printer. It retains the VPA.
func NewPrinter(vpa *vpav1.VerticalPodAutoscaler, ranges LimitRanges) Printer {
	var recommended []vpav1.RecommendedContainerResources
	if r := vpa.Status.Recommendation; r != nil {
		recommended = r.ContainerRecommendations
	}
	return Printer{byName(recommended, func(r *vpav1.RecommendedContainerResources) string { return r.ContainerName }), readPolicies(vpa), ranges}
}

// Sizes prints the result of policy.Fit or of a boost for one container, in the number format of
// the deciding value. That is the first equal one of the recommendation, minAllowed, maxAllowed, a
// bound of the namespace, and the limit of the container. A limit that equals its request is
// printed like the request. Lists without a value are nil. Current holds the present resources of
// the container. A request never exceeds a current limit that stays: Fit rounds that limit up to
// whole millicores or bytes, so the exact limit may be smaller.
func (p *Printer) Sizes(f policy.ContainerTarget, current corev1.ResourceRequirements) (sizes corev1.ResourceRequirements) {
	like := make([]corev1.ResourceList, 0, 6)
	if r := p.recommended.find(f.Name); r != nil {
		like = append(like, r.Target)
	}
	if own := p.policies.find(f.Name); own != nil {
		like = append(like, own.MinAllowed, own.MaxAllowed)
	}
	like = append(like, p.ranges.min, p.ranges.max, current.Limits)
	sizes.Requests = FormatLike(f.Requests, like...)
	p.roundMemory(sizes.Requests)
	for k := range resources.Kind(resources.Kinds) {
		limit, stays := current.Limits[ResourceName(k)]
		if !stays || f.Limits.Has(k) || f.WithoutLimit[k] {
			continue
		}
		if request, written := sizes.Requests[ResourceName(k)]; written && Amount(k, request) == Amount(k, limit) && request.Cmp(limit) > 0 {
			sizes.Requests[ResourceName(k)] = limit
		}
	}
	sizes.Limits = limits(f, sizes.Requests, current.Limits, p.ranges.defaults)
	return sizes
}

// roundMemory rounds memory up to whole bytes in a namespace with LimitRanges, because the
// LimitRanger plugin compares fractions.
func (p *Printer) roundMemory(list corev1.ResourceList) {
	if p.ranges.Ranges == (policy.Ranges{}) {
		return
	}
	if q, written := list[corev1.ResourceMemory]; written {
		q.RoundUp(0)
		list[corev1.ResourceMemory] = q
	}
}

// limits prints limits that equal their request exactly like the request, so that a Guaranteed pod
// keeps its QoS class. Other limits keep the format of the limit that they are derived from.
func limits(f policy.ContainerTarget, requests corev1.ResourceList, from ...corev1.ResourceList) corev1.ResourceList {
	if f.Limits.Empty() {
		return nil
	}
	list := FormatLike(f.Limits, from...)
	for k := range resources.Kind(resources.Kinds) {
		if limit, ok := f.Limits.Get(k); ok && f.Requests.Has(k) && limit == f.Requests.Value(k) {
			list[ResourceName(k)] = requests[ResourceName(k)]
		}
	}
	return list
}

// FormatLike prints resources in existing number formats. For each resource it returns the first
// quantity in the lists with the same value, else a new one in the format of the first non-zero
// quantity. It returns nil if there are no resources.
func FormatLike(r resources.List, like ...corev1.ResourceList) corev1.ResourceList {
	if r.Empty() {
		return nil
	}
	list := make(corev1.ResourceList, resources.Kinds)
	for k := range resources.Kind(resources.Kinds) {
		if a, ok := r.Get(k); ok {
			list[ResourceName(k)] = formatLike(k, a, like)
		}
	}
	return list
}

func formatLike(k resources.Kind, a resources.Amount, like []corev1.ResourceList) resource.Quantity {
	fresh, known := Quantity(k, a), false
	for _, list := range like {
		q, ok := list[ResourceName(k)]
		if !ok {
			continue
		}
		if Amount(k, q) == a {
			return q
		}
		if !known && !q.IsZero() {
			fresh.Format, known = q.Format, true
		}
	}
	return fresh
}
