package convert

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/core/resources"
)

// ResourceName returns the name of a kind in the Kubernetes API.
func ResourceName(k resources.Kind) corev1.ResourceName {
	if k == resources.CPU {
		return corev1.ResourceCPU
	}
	return corev1.ResourceMemory
}

// Amount reads a quantity as millicores or bytes, rounded up. What is negative
// becomes 0 and what is too large the largest int64.
func Amount(k resources.Kind, q resource.Quantity) resources.Amount {
	scale, units := resource.Scale(0), q.AsApproximateFloat64()
	if k == resources.CPU {
		scale, units = resource.Milli, units*1000
	}
	switch {
	case units <= 0:
		return 0
	case units >= math.MaxInt64:
		return math.MaxInt64
	}
	return resources.Amount(q.ScaledValue(scale))
}

// Resources reads the CPU and memory of a list; other resources are ignored.
func Resources(list corev1.ResourceList) resources.List {
	var r resources.List
	for k := range resources.Kind(resources.Kinds) {
		if q, ok := list[ResourceName(k)]; ok {
			r = r.With(k, Amount(k, q))
		}
	}
	return r
}

// Quantity prints an amount: CPU as decimal millicores, memory in binary units.
func Quantity(k resources.Kind, a resources.Amount) resource.Quantity {
	if k == resources.CPU {
		return *resource.NewMilliQuantity(int64(a), resource.DecimalSI)
	}
	return *resource.NewQuantity(int64(a), resource.BinarySI)
}

// Written prints Resources in the form in which the values were written: for
// each kind it returns the first quantity of that kind in the lists that has
// the same value, else a new one in the number format of the first list that
// has the kind. It is nil if there are no resources.
func Written(r resources.List, like ...corev1.ResourceList) corev1.ResourceList {
	if r.Empty() {
		return nil
	}
	list := make(corev1.ResourceList, resources.Kinds)
	for k := range resources.Kind(resources.Kinds) {
		if a, ok := r.Get(k); ok {
			list[ResourceName(k)] = written(k, a, like)
		}
	}
	return list
}

func written(k resources.Kind, a resources.Amount, like []corev1.ResourceList) resource.Quantity {
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
