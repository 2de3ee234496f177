package validate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

func (ch *checker) containerPolicies(all []vpav1.ContainerResourcePolicy, at *field.Path) {
	if len(all) > maxPolicies {
		ch.refuse(field.TooMany(at, len(all), maxPolicies))
		return
	}
	for i := range all {
		if ch.full() {
			return
		}
		ch.containerPolicy(&all[i], at.Index(i))
	}
}

func (ch *checker) containerPolicy(p *vpav1.ContainerResourcePolicy, at *field.Path) {
	if p.ContainerName == "" {
		ch.refuse(field.Required(at.Child("containerName"), `must be the name of a container, or "*" for all others`))
	}
	off := false
	if p.Mode != nil {
		off = *p.Mode == vpav1.ContainerScalingModeOff
		oneOf(ch, at.Child("mode"), *p.Mode, vpav1.ContainerScalingModeAuto, vpav1.ContainerScalingModeOff)
	}
	ch.bounds(p, at)
	if off && p.ControlledValues != nil && *p.ControlledValues == vpav1.ContainerControlledValuesRequestsAndLimits {
		ch.refuse(field.Forbidden(at.Child("controlledValues"), "RequestsAndLimits has no meaning with mode Off: leave out one of the two"))
	}
	if p.ControlledResources != nil {
		for i, name := range *p.ControlledResources {
			if ch.full() {
				return
			}
			ch.controlled(name, at.Child("controlledResources").Index(i))
		}
	}
	ch.memorySettings(p, at)
	ch.startupBoost(p.StartupBoost, at.Child("startupBoost"))
}

func (ch *checker) bounds(p *vpav1.ContainerResourcePolicy, at *field.Path) {
	minima, maxima := at.Child("minAllowed"), at.Child("maxAllowed")
	for _, name := range slices.Sorted(maps.Keys(p.MinAllowed)) {
		ch.whole(minima.Key(string(name)), name, p.MinAllowed[name])
	}
	for _, name := range slices.Sorted(maps.Keys(p.MaxAllowed)) {
		maximum := p.MaxAllowed[name]
		ch.whole(maxima.Key(string(name)), name, maximum)
		if maximum.Sign() <= 0 && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			ch.warn("%s: %s has no effect: leave it out for no maximum, give an amount above 0, or leave %s out of controlledResources", maxima.Key(string(name)), maximum.String(), name)
		}
		if minimum, ok := p.MinAllowed[name]; ok && maximum.Cmp(minimum) < 0 {
			ch.refuse(field.Invalid(maxima.Key(string(name)), maximum.String(), "must not be less than minAllowed, which is "+minimum.String()))
		}
	}
}

func (ch *checker) whole(at *field.Path, name corev1.ResourceName, q resource.Quantity) {
	switch name {
	case corev1.ResourceCPU:
		ch.wholeCPU(at, q)
	case corev1.ResourceMemory:
		if q.Cmp(*resource.NewQuantity(q.Value(), resource.BinarySI)) != 0 {
			ch.refuse(field.Invalid(at, q.String(), "must be a whole number of bytes, for example 250Mi"))
		}
	}
}

func (ch *checker) wholeCPU(at *field.Path, q resource.Quantity) {
	if q.Cmp(*resource.NewMilliQuantity(q.MilliValue(), resource.DecimalSI)) != 0 {
		ch.refuse(field.Invalid(at, q.String(), "must be a whole number of millicores, for example 250m"))
	}
}

func (ch *checker) controlled(name corev1.ResourceName, at *field.Path) {
	switch {
	case name == corev1.ResourceCPU || name == corev1.ResourceMemory:
	case ch.oldFeatures.controlled[string(name)]:
		ch.warn("%s: %q is ignored: only cpu and memory can be controlled", at, shorten(string(name), maxQuoted))
	default:
		ch.refuse(field.NotSupported(at, string(name), []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
	}
}

func (ch *checker) memorySettings(p *vpav1.ContainerResourcePolicy, at *field.Path) {
	ratio, bump := at.Child("oomBumpUpRatio"), at.Child("oomMinBumpUp")
	if q := p.OOMBumpUpRatio; q != nil {
		switch {
		case !ch.allowsPerVPA():
			ch.refuse(field.Forbidden(ratio, gateOff("PerVPAConfig")))
		case q.MilliValue() < 1000:
			ch.refuse(field.Invalid(ratio, q.String(), "must be at least 1"))
		}
	}
	if q := p.OOMMinBumpUp; q != nil {
		switch {
		case !ch.allowsPerVPA():
			ch.refuse(field.Forbidden(bump, gateOff("PerVPAConfig")))
		case q.Sign() < 0:
			ch.refuse(field.Invalid(bump, q.String(), "must not be negative"))
		}
	}
	if n := p.MemoryAggregationIntervalSeconds; n != nil {
		ch.perVPA(at.Child("memoryAggregationIntervalSeconds"), int64(*n))
	}
	if n := p.MemoryAggregationIntervalCount; n != nil {
		ch.perVPA(at.Child("memoryAggregationIntervalCount"), *n)
	}
}

func oneOf[T ~string](ch *checker, at *field.Path, value T, known ...T) {
	if !slices.Contains(known, value) {
		ch.refuse(field.NotSupported(at, string(value), known))
	}
}
