package convert

import (
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
)

// LimitRanges are the combined LimitRange objects of one namespace: as core
// values, and as they were written. The zero value demands nothing.
type LimitRanges struct {
	policy.Ranges
	bounds   []corev1.ResourceList // minima and maxima for containers
	defaults []corev1.ResourceList
}

// Ranges combines LimitRange objects: highest minimum, lowest maximum, lowest
// default and ratio. Items for other things than pods and containers are ignored.
func Ranges(objects []*corev1.LimitRange) LimitRanges {
	var all LimitRanges
	for _, object := range objects {
		for _, item := range object.Spec.Limits {
			r := policy.Range{Min: Resources(item.Min), Max: Resources(item.Max), MaxRatio: ratios(item.MaxLimitRequestRatio)}
			switch item.Type {
			case corev1.LimitTypePod:
				all.Pod = all.Pod.And(r)
			case corev1.LimitTypeContainer:
				r.Default = Resources(item.Default)
				all.Container = all.Container.And(r)
				all.bounds = append(all.bounds, item.Min, item.Max)
				all.defaults = append(all.defaults, item.Default)
			}
		}
	}
	return all
}

// ratios reads plain numbers in thousandths, rounded down.
func ratios(list corev1.ResourceList) (r amount.Resources) {
	for k := range amount.Kind(amount.Kinds) {
		if q, ok := list[ResourceName(k)]; ok {
			r = r.With(k, amount.FromFloat(q.AsApproximateFloat64()*1000))
		}
	}
	return r
}

// Sizes prints what Fit (or a boost) returned for one container, in the number
// format in which the deciding value was written: the recommendation, a bound
// of the VPA or of the namespace, or the container's own limit. Lists without
// a value are nil. Current is what the container has now.
func Sizes(f policy.Fitted, current corev1.ResourceRequirements, vpa *vpav1.VerticalPodAutoscaler, ranges LimitRanges) corev1.ResourceRequirements {
	like := make([]corev1.ResourceList, 0, 8)
	if r := vpa.Status.Recommendation; r != nil {
		for _, c := range r.ContainerRecommendations {
			if c.ContainerName == f.Name {
				like = append(like, c.Target)
				break
			}
		}
	}
	if p := ContainerPolicy(vpa, f.Name); p != nil {
		like = append(like, p.MinAllowed, p.MaxAllowed)
	}
	like = append(append(like, ranges.bounds...), current.Limits)
	var sizes corev1.ResourceRequirements
	sizes.Requests = Written(f.Requests, like...)
	sizes.Limits = limits(f, sizes.Requests, append([]corev1.ResourceList{current.Limits}, ranges.defaults...))
	return sizes
}

// limits prints limits exactly as the request where they equal it, so that a
// pod whose requests equal its limits stays of the Guaranteed class, else in
// the format of the limit they come from.
func limits(f policy.Fitted, requests corev1.ResourceList, from []corev1.ResourceList) corev1.ResourceList {
	if f.Limits.Empty() {
		return nil
	}
	list := Written(f.Limits, from...)
	for k := range amount.Kind(amount.Kinds) {
		if limit, ok := f.Limits.Get(k); ok && f.Requests.Has(k) && limit == f.Requests.Value(k) {
			list[ResourceName(k)] = requests[ResourceName(k)]
		}
	}
	return list
}
