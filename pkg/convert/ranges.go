package convert

import (
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// LimitRanges are the combined LimitRange objects of one namespace: as core
// values, and as they were written. The zero value demands nothing.
type LimitRanges struct {
	policy.Ranges
	// Minima, maxima and defaults for containers as they were written.
	least, most, standard corev1.ResourceList
}

// Ranges combines LimitRange objects: highest minimum, lowest maximum, lowest
// default and ratio. Items for other things than pods and containers are ignored.
func Ranges(objects []*corev1.LimitRange) LimitRanges {
	var all LimitRanges
	for _, object := range objects {
		for i := range object.Spec.Limits {
			item := &object.Spec.Limits[i]
			r := policy.Range{Min: Resources(item.Min), Max: maxima(item.Max), MaxRatio: ratios(item.MaxLimitRequestRatio)}
			switch item.Type {
			case corev1.LimitTypePod:
				all.Pod = all.Pod.And(r)
			case corev1.LimitTypeContainer:
				r.Default = Resources(item.Default)
				all.Container = all.Container.And(r)
				all.least = deciding(all.least, item.Min, all.Container.Min)
				all.most = deciding(all.most, item.Max, all.Container.Max)
				all.standard = deciding(all.standard, item.Default, all.Container.Default)
			}
		}
	}
	return all
}

// deciding returns quantities as they were written whose values are those that decide:
// what was found before, where it still does, else what an item has.
func deciding(before, item corev1.ResourceList, values resources.List) corev1.ResourceList {
	for k := range resources.Kind(resources.Kinds) {
		name := ResourceName(k)
		a, ok := values.Get(k)
		if q, has := before[name]; !ok || has && Amount(k, q) == a {
			continue
		}
		if q, has := item[name]; has && Amount(k, q) == a {
			if before == nil {
				before = corev1.ResourceList{}
			}
			before[name] = q
		}
	}
	return before
}

// maxima converts maximums, rounded down to whole amounts.
func maxima(list corev1.ResourceList) resources.List {
	r := Resources(list)
	if q, ok := list[corev1.ResourceMemory]; ok && q.Sign() > 0 {
		if a := r.Value(resources.Memory); q.CmpInt64(int64(a)) < 0 {
			r = r.With(resources.Memory, a-1)
		}
	}
	return r
}

// ratios reads plain numbers in thousandths, rounded down.
func ratios(list corev1.ResourceList) (r resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if q, ok := list[ResourceName(k)]; ok {
			r = r.With(k, resources.FromFloat(q.AsApproximateFloat64()*1000))
		}
	}
	return r
}
