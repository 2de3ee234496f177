// Package drawn generates random pods, VerticalPodAutoscalers and LimitRanges for property tests.
//
// Unusual but valid values are as frequent as ordinary ones: requests and limits that are missing,
// zero, equal or fractional, limits without requests, huge pages, devices, init containers,
// sidecars and pod-level resources. Production code must not import the package.
package drawn

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

var (
	cpus     = []string{"0", "1u", "1m", "1500u", "10m", "99999u", "100m", "100500u", "0.1", "250m", "1", "1.0005", "2500m", "64"}
	memories = []string{"0", "1", "1500m", "1Ki", "0.1Mi", "107374182400m", "100Mi", "0.1Gi",
		"107374182", "107374183", "128M", "1Gi", "1.1Gi", "12.5Gi", "1Ti"}
	sized = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
)

func quantity(t *rapid.T, name corev1.ResourceName, label string) resource.Quantity {
	values := cpus
	if name == corev1.ResourceMemory {
		values = memories
	}
	return resource.MustParse(rapid.SampledFrom(values).Draw(t, label+" "+string(name)))
}

// List draws quantities of CPU and memory. Each of them may be missing.
func List(t *rapid.T, label string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range sized {
		if rapid.Bool().Draw(t, label+" has "+string(name)) {
			list[name] = quantity(t, name, label)
		}
	}
	return list
}

// Pod draws a pod with containers a, b and c that is valid in a namespace without LimitRanges.
func Pod(t *rapid.T) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "drawn"}}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		pod.Spec.Containers = append(pod.Spec.Containers, container(t, string(rune('a'+i))))
	}
	if rapid.Bool().Draw(t, "init") {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []corev1.Container{container(t, "init"), container(t, "sidecar")}
		pod.Spec.InitContainers[0].ResizePolicy, pod.Spec.InitContainers[1].RestartPolicy = nil, &always
	}
	if rapid.IntRange(0, 9).Draw(t, "pod level") == 0 {
		pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("999")}}
	}
	Default(pod)
	return pod
}

func container(t *rapid.T, name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "registry.example/app"}
	r := &c.Resources
	r.Requests, r.Limits = List(t, name+" requests"), List(t, name+" limits")
	if rapid.Bool().Draw(t, name+" equal") {
		r.Requests = maps.Clone(r.Limits)
	}
	for resourceName, limit := range r.Limits {
		if request, exists := r.Requests[resourceName]; exists && request.Cmp(limit) > 0 {
			r.Requests[resourceName] = limit
		}
	}
	if rapid.Bool().Draw(t, name+" others") {
		r.Limits["hugepages-2Mi"], r.Limits["example.com/device"] = resource.MustParse("4Mi"), resource.MustParse("1")
		r.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse("2Gi")
		if len(r.Requests) == 0 {
			r.Requests[corev1.ResourceCPU] = resource.MustParse("0")
		}
	}
	for _, resourceName := range sized {
		policies := []corev1.ResourceResizeRestartPolicy{"", corev1.NotRequired, corev1.RestartContainer}
		policy := rapid.SampledFrom(policies).Draw(t, name+" resizes "+string(resourceName))
		if policy != "" {
			c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{ResourceName: resourceName, RestartPolicy: policy})
		}
	}
	return c
}

// Default applies the defaults of the API server before admission: it rounds quantities up to
// thousandths, sets missing requests to the limits and empty lists to nil.
func Default(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
				for name, q := range list {
					q.RoundUp(resource.Milli)
					list[name] = q
				}
			}
			for name, limit := range r.Limits {
				if _, exists := r.Requests[name]; !exists {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = limit
				}
			}
			if len(r.Requests) == 0 {
				r.Requests = nil
			}
			if len(r.Limits) == 0 {
				r.Limits = nil
			}
		}
	}
}

// VPA draws a VerticalPodAutoscaler with a recommendation for the containers a and b.
func VPA(t *rapid.T) *vpav1.VerticalPodAutoscaler {
	vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	modes := []vpav1.UpdateMode{vpav1.UpdateModeInitial, vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlace}
	mode := rapid.SampledFrom(modes).Draw(t, "mode")
	vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: &mode}
	vpa.Spec.StartupBoost = boost(t, "all")
	vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{}
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{}
	if rapid.IntRange(0, 3).Draw(t, "separate") == 0 {
		vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: "SeparateMemoryLimit", Status: corev1.ConditionTrue}}
	}
	for _, name := range []string{"a", "b"} {
		target := List(t, name+" target")
		vpa.Status.Recommendation.ContainerRecommendations = append(vpa.Status.Recommendation.ContainerRecommendations,
			vpav1.RecommendedContainerResources{ContainerName: name, LowerBound: target, Target: target, UpperBound: target})
		own := vpav1.ContainerResourcePolicy{ContainerName: name, StartupBoost: boost(t, name)}
		if rapid.Bool().Draw(t, name+" requests only") {
			own.ControlledValues = new(vpav1.ContainerControlledValuesRequestsOnly)
		}
		if rapid.IntRange(0, 4).Draw(t, name+" off") == 0 {
			own.Mode = new(vpav1.ContainerScalingModeOff)
		}
		if rapid.Bool().Draw(t, name+" has bounds") {
			own.MinAllowed, own.MaxAllowed = List(t, name+" min"), List(t, name+" max")
			ascending(own.MinAllowed, own.MaxAllowed)
		}
		vpa.Spec.ResourcePolicy.ContainerPolicies = append(vpa.Spec.ResourcePolicy.ContainerPolicies, own)
	}
	return vpa
}

func boost(t *rapid.T, label string) *vpav1.StartupBoost {
	switch rapid.IntRange(0, 5).Draw(t, label+" boost") {
	case 0:
		factor := rapid.Int32Range(1, 20).Draw(t, label+" factor")
		return &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: &factor}}
	case 1:
		more := quantity(t, corev1.ResourceCPU, label+" boost")
		return &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeQuantity, Quantity: &more}}
	}
	return nil
}

// ascending sorts each resource, so that no list exceeds a later one.
func ascending(lists ...corev1.ResourceList) {
	for _, name := range sized {
		var with []corev1.ResourceList
		var amounts []resource.Quantity
		for _, list := range lists {
			if q, exists := list[name]; exists {
				with, amounts = append(with, list), append(amounts, q)
			}
		}
		slices.SortFunc(amounts, func(a, b resource.Quantity) int { return a.Cmp(b) })
		for i := range with {
			with[i][name] = amounts[i]
		}
	}
}

// Ranges draws valid LimitRanges of a namespace.
func Ranges(t *rapid.T) (objects []*corev1.LimitRange) {
	for _, kind := range []corev1.LimitType{corev1.LimitTypeContainer, corev1.LimitTypePod} {
		if !rapid.Bool().Draw(t, "range of "+string(kind)) {
			continue
		}
		item := corev1.LimitRangeItem{Type: kind, Min: bounds(t, string(kind)+" min"), Max: bounds(t, string(kind)+" max")}
		if kind == corev1.LimitTypeContainer {
			item.DefaultRequest, item.Default = bounds(t, "default request"), bounds(t, "default")
		}
		ascending(item.Min, item.DefaultRequest, item.Default, item.Max)
		item.MaxLimitRequestRatio = corev1.ResourceList{}
		for _, name := range sized {
			least, has := item.Min[name]
			most, bounded := item.Max[name]
			wide := !has || !bounded || most.AsApproximateFloat64() >= 2*least.AsApproximateFloat64()
			if wide && rapid.Bool().Draw(t, string(kind)+" ratio of "+string(name)) {
				item.MaxLimitRequestRatio[name] = resource.MustParse(rapid.SampledFrom([]string{"1", "1.5", "2"}).Draw(t, string(kind)+" ratio"))
			}
		}
		objects = append(objects, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(string(kind))},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}})
	}
	return objects
}

func bounds(t *rapid.T, label string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range sized {
		if rapid.IntRange(0, 2).Draw(t, label+" bounds "+string(name)) == 0 {
			values := []string{"1m", "10m", "99m", "100m", "250m", "333m", "1", "2", "2500m"}
			if name == corev1.ResourceMemory {
				values = []string{"1", "1Ki", "100Mi", "107374183", "128M", "300Mi", "1Gi", "1.1Gi", "4Gi"}
			}
			list[name] = resource.MustParse(rapid.SampledFrom(values).Draw(t, label+" "+string(name)))
		}
	}
	return list
}
