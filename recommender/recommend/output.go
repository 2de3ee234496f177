package recommend

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
)

// OutputLimits are what the flags make of every recommendation before it is published.
type OutputLimits struct {
	IntegerCPU bool                // honour the annotation that asks for whole cores
	MaxAllowed corev1.ResourceList // for containers whose policy has no maximum
}

// PostProcess returns a recommendation as it is published for vpa: first CPU is
// rounded up to whole cores where that is asked for, then all but the uncapped
// target are moved into the bounds of the container's policy. A bound that takes
// effect is used as it is written.
func PostProcess(list []vpav1.RecommendedContainerResources, vpa *vpav1.VerticalPodAutoscaler, l OutputLimits) []vpav1.RecommendedContainerResources {
	rules := convert.Rules(vpa)
	most := convert.Resources(l.MaxAllowed)
	done := make([]vpav1.RecommendedContainerResources, len(list))
	for i, c := range list {
		if l.IntegerCPU && vpa.Annotations["vpa-post-processor.kubernetes.io/"+c.ContainerName+"_integerCPU"] == "true" {
			c = wholeCores(c)
		}
		done[i] = capped(c, rules.For(c.ContainerName).OrMax(most), bounds(vpa, c.ContainerName, l.MaxAllowed))
		if done[i].Target == nil {
			done[i].Target = corev1.ResourceList{} // required, and the API server refuses a null
		}
	}
	return done
}

// bounds returns the lists whose quantities a capped value may be, first those
// of the container's own policy.
func bounds(vpa *vpav1.VerticalPodAutoscaler, container string, most corev1.ResourceList) []corev1.ResourceList {
	if p := convert.ContainerPolicy(vpa, container); p != nil {
		return []corev1.ResourceList{p.MinAllowed, p.MaxAllowed, most}
	}
	return []corev1.ResourceList{most}
}

func capped(c vpav1.RecommendedContainerResources, rule policy.Rule, bounds []corev1.ResourceList) vpav1.RecommendedContainerResources {
	if rule.Min.Empty() && rule.Max.Empty() {
		return c
	}
	b := policy.Cap(convert.Bounds(c), rule)
	like := func(own corev1.ResourceList) []corev1.ResourceList {
		return append([]corev1.ResourceList{own}, bounds...)
	}
	c.LowerBound = convert.Written(b.Lower, like(c.LowerBound)...)
	c.Target = convert.Written(b.Target, like(c.Target)...)
	c.UpperBound = convert.Written(b.Upper, like(c.UpperBound)...)
	return c
}

func wholeCores(c vpav1.RecommendedContainerResources) vpav1.RecommendedContainerResources {
	for _, list := range []*corev1.ResourceList{&c.Target, &c.LowerBound, &c.UpperBound, &c.UncappedTarget} {
		q, found := (*list)[corev1.ResourceCPU]
		if !found {
			continue
		}
		rounded := list.DeepCopy()
		rounded[corev1.ResourceCPU] = *resource.NewQuantity(q.Value(), q.Format)
		*list = rounded
	}
	return c
}
