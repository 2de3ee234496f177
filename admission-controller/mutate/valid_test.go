package mutate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// invalid returns why the API server refuses the resources of a pod, "" if it does not: requests and
// limits that are negative or contradict each other. The rules are those of its validation.
func invalid(pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name, limit := range c.Resources.Limits {
			if limit.Sign() < 0 {
				return fmt.Sprintf("%s: negative limit of %s", c.Name, name)
			}
		}
		huge, basic := false, false
		for name, request := range c.Resources.Requests {
			limit, limited := c.Resources.Limits[name]
			exact := !overcommits(name)
			huge = huge || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
			basic = basic || name == corev1.ResourceCPU || name == corev1.ResourceMemory
			switch {
			case request.Sign() < 0:
				return fmt.Sprintf("%s: negative request of %s", c.Name, name)
			case exact && (!limited || request.Cmp(limit) != 0):
				return fmt.Sprintf("%s: request of %s must equal its limit", c.Name, name)
			case limited && request.Cmp(limit) > 0:
				return fmt.Sprintf("%s: request %s of %s is above the limit %s", c.Name, request.String(), name, limit.String())
			}
		}
		if huge && !basic {
			return c.Name + ": huge pages need a request for CPU or memory"
		}
	}
	return ""
}

// overcommits reports whether the limit of a resource may be above its request.
func overcommits(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// defaulted sets requests that are missing to the limits, as the API server does before admission.
func defaulted(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			for name, limit := range r.Limits {
				if _, there := r.Requests[name]; !there {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = limit
				}
			}
		}
	}
}

var (
	drawnCPU    = rapid.SampledFrom([]string{"0", "1u", "1m", "1500u", "10m", "99999u", "100m", "100500u", "0.1", "250m", "1", "1.0005", "2500m", "64"})
	drawnMemory = rapid.SampledFrom([]string{"0", "1", "1500m", "1Ki", "0.1Mi", "107374182400m", "100Mi", "0.1Gi", "107374182", "107374183", "128M", "1Gi", "1.1Gi", "12.5Gi", "1Ti"})
)

func drawList(t *rapid.T, label string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if rapid.Bool().Draw(t, label+" has cpu") {
		list[corev1.ResourceCPU] = resource.MustParse(drawnCPU.Draw(t, label+" cpu"))
	}
	if rapid.Bool().Draw(t, label+" has memory") {
		list[corev1.ResourceMemory] = resource.MustParse(drawnMemory.Draw(t, label+" memory"))
	}
	return list
}

// drawContainer returns a valid container.
func drawContainer(t *rapid.T, name string) corev1.Container {
	c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: drawList(t, name+" requests"), Limits: drawList(t, name+" limits")}}
	if rapid.Bool().Draw(t, name+" equal") {
		c.Resources.Requests = c.Resources.Limits.DeepCopy()
	}
	for resourceName, limit := range c.Resources.Limits {
		if request, there := c.Resources.Requests[resourceName]; there && request.Cmp(limit) > 0 {
			c.Resources.Requests[resourceName] = limit
		}
	}
	if rapid.Bool().Draw(t, name+" others") {
		c.Resources.Limits["hugepages-2Mi"], c.Resources.Limits["example.com/device"] = resource.MustParse("4Mi"), resource.MustParse("1")
		c.Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse("2Gi")
		if len(c.Resources.Requests) == 0 {
			c.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("0")
		}
	}
	return c
}

func drawPod(t *rapid.T) *corev1.Pod {
	pod := &corev1.Pod{}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		pod.Spec.Containers = append(pod.Spec.Containers, drawContainer(t, string(rune('a'+i))))
	}
	if rapid.Bool().Draw(t, "init") {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []corev1.Container{drawContainer(t, "init"), drawContainer(t, "sidecar")}
		pod.Spec.InitContainers[1].RestartPolicy = &always
	}
	if rapid.IntRange(0, 9).Draw(t, "pod level") == 0 {
		pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("999")}}
	}
	defaulted(pod)
	for i := range pod.Spec.Containers { // a decoded pod has no empty lists
		r := &pod.Spec.Containers[i].Resources
		if len(r.Requests) == 0 {
			r.Requests = nil
		}
		if len(r.Limits) == 0 {
			r.Limits = nil
		}
	}
	return pod
}

func drawVPA(t *rapid.T) *vpav1.VerticalPodAutoscaler {
	vpa := &vpav1.VerticalPodAutoscaler{}
	vpa.Name = "web"
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{}
	vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{}
	for _, name := range []string{"a", "b"} {
		target := drawList(t, name+" target")
		vpa.Status.Recommendation.ContainerRecommendations = append(vpa.Status.Recommendation.ContainerRecommendations,
			vpav1.RecommendedContainerResources{ContainerName: name, LowerBound: target, Target: target, UpperBound: target})
		own := vpav1.ContainerResourcePolicy{ContainerName: name}
		if rapid.Bool().Draw(t, name+" requests only") {
			own.ControlledValues = new(vpav1.ContainerControlledValuesRequestsOnly)
		}
		if rapid.Bool().Draw(t, name+" has bounds") {
			own.MinAllowed, own.MaxAllowed = drawList(t, name+" min"), drawList(t, name+" max")
			for resourceName, least := range own.MinAllowed {
				if most, there := own.MaxAllowed[resourceName]; there && least.Cmp(most) > 0 {
					own.MinAllowed[resourceName] = most
				}
			}
		}
		vpa.Spec.ResourcePolicy.ContainerPolicies = append(vpa.Spec.ResourcePolicy.ContainerPolicies, own)
	}
	return vpa
}

func drawRanges(t *rapid.T) (objects []*corev1.LimitRange) {
	for _, kind := range []corev1.LimitType{corev1.LimitTypeContainer, corev1.LimitTypePod} {
		if !rapid.Bool().Draw(t, "range of "+string(kind)) {
			continue
		}
		item := corev1.LimitRangeItem{Type: kind, Min: drawList(t, string(kind)+" min"), Max: drawList(t, string(kind)+" max")}
		for name, least := range item.Min {
			if most, there := item.Max[name]; there && least.Cmp(most) > 0 {
				item.Min[name] = most
			}
		}
		if rapid.Bool().Draw(t, string(kind)+" has ratio") {
			item.MaxLimitRequestRatio = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1.5"), corev1.ResourceCPU: resource.MustParse("2")}
		}
		objects = append(objects, &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}})
	}
	return objects
}

// A pod that the API server accepts is accepted with the sizes that the webhook gives it, too.
func TestPatch_ValidPodStaysValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod, vpa := drawPod(t), drawVPA(t)
		if invalid(pod) != "" {
			t.Fatalf("drawn pod is invalid: %s", invalid(pod))
		}
		m, err := Config{}.Patch(pod, vpa, inNamespace(drawRanges(t)))
		require.NoError(t, err)
		after, err := applied(pod, m.Patch)
		require.NoError(t, err)
		if why := invalid(after); why != "" {
			t.Fatalf("%s\nbefore: %v\nafter: %v", why, resourcesOf(pod), resourcesOf(after))
		}
	})
}

func resourcesOf(pod *corev1.Pod) (texts []string) {
	for _, c := range pod.Spec.Containers {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			text := c.Name
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				q, there := list[name]
				if there {
					text += " " + q.String()
				} else {
					text += " none"
				}
			}
			texts = append(texts, text)
		}
	}
	return texts
}
