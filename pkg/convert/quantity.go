package convert

import (
	"math"
	"strings"

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

// IsGPU reports whether a resource is a GPU or a part of one: an extended resource that is called
// so, or any of NVIDIA's.
func IsGPU(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "gpu") || strings.HasPrefix(string(name), "nvidia.com/")
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

// Measured reads an amount of a metrics API, rounded up. A negative one is -1, so that the store
// rejects and counts it.
func Measured(k resources.Kind, q resource.Quantity) resources.Amount {
	if q.Sign() < 0 {
		return -1
	}
	return Amount(k, q)
}
