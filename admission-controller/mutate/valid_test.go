package mutate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/testkit/drawn"
)

// invalid returns the reason why the API server refuses the resources of a pod, or "". The rules
// are those of its validation: requests and limits must not be negative or contradict each other.
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

func overcommits(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// refusedBy returns the reason why a LimitRange refuses a pod, or "". The rules are those of its
// admission plugin.
func refusedBy(objects []*corev1.LimitRange, pod *corev1.Pod) string {
	for _, object := range objects {
		for _, item := range object.Spec.Limits {
			if item.Type == corev1.LimitTypePod {
				if why := outside(&item, "pod", total(pod)); why != "" {
					return why
				}
				continue
			}
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				if why := outside(&item, c.Name, c.Resources); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

func outside(item *corev1.LimitRangeItem, of string, has corev1.ResourceRequirements) string {
	for name, least := range item.Min {
		request, requested := has.Requests[name]
		if limit, limited := has.Limits[name]; !requested || request.Cmp(least) < 0 || limited && limit.Cmp(least) < 0 {
			return fmt.Sprintf("%s: less %s than %s", of, name, least.String())
		}
	}
	for name, most := range item.Max {
		limit, limited := has.Limits[name]
		if request := has.Requests[name]; !limited || limit.Cmp(most) > 0 || request.Cmp(most) > 0 {
			return fmt.Sprintf("%s: more %s than %s", of, name, most.String())
		}
	}
	for name, ratio := range item.MaxLimitRequestRatio {
		request, limit := has.Requests[name], has.Limits[name]
		if request.IsZero() || limit.IsZero() || float64(limit.MilliValue())/float64(request.MilliValue())*1000 > float64(ratio.MilliValue()) {
			return fmt.Sprintf("%s: limit and request of %s are further apart than %s", of, name, ratio.String())
		}
	}
	return ""
}

// total returns the resources of a pod as a LimitRange of type Pod counts them.
func total(pod *corev1.Pod) corev1.ResourceRequirements {
	sum := func(list func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
		all, sidecars, starting := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
		for i := range pod.Spec.Containers {
			add(all, list(&pod.Spec.Containers[i]))
		}
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			now := sidecars.DeepCopy()
			add(now, list(c))
			if c.RestartPolicy != nil {
				add(all, list(c))
				add(sidecars, list(c))
			}
			for name, q := range now {
				if has := starting[name]; q.Cmp(has) >= 0 {
					starting[name] = q
				}
			}
		}
		for name, q := range starting {
			if has := all[name]; q.Cmp(has) >= 0 {
				all[name] = q
			}
		}
		return all
	}
	r := corev1.ResourceRequirements{Requests: sum(func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests }),
		Limits: sum(func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits })}
	if whole := pod.Spec.Resources; whole != nil {
		maps.Copy(r.Requests, whole.Requests)
		maps.Copy(r.Limits, whole.Limits)
	}
	return r
}

func add(to, more corev1.ResourceList) {
	for name, q := range more {
		has := to[name]
		has.Add(q)
		to[name] = has
	}
}

func defaulted(objects []*corev1.LimitRange, pod *corev1.Pod) {
	fill := func(list *corev1.ResourceList, defaults corev1.ResourceList) {
		for name, q := range defaults {
			if _, exists := (*list)[name]; !exists {
				if *list == nil {
					*list = corev1.ResourceList{}
				}
				(*list)[name] = q
			}
		}
	}
	for _, object := range objects {
		for _, item := range object.Spec.Limits {
			for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for i := range containers {
					fill(&containers[i].Resources.Requests, item.DefaultRequest)
					fill(&containers[i].Resources.Limits, item.Default)
				}
			}
		}
	}
}

func TestPatch_ValidPodStaysValid(t *testing.T) {
	valid := 0
	rapid.Check(t, func(t *rapid.T) {
		pod, vpa, ranges := drawn.Pod(t), drawn.VPA(t), drawn.Ranges(t)
		defaulted(ranges, pod)
		if invalid(pod) != "" || refusedBy(ranges, pod) != "" {
			return
		}
		valid++
		config := Config{Boost: true, MaxBoost: resources.Amount(rapid.IntRange(0, 8000).Draw(t, "max boost"))}
		m, err := config.Patch(pod, vpa, inNamespace(ranges))
		require.NoError(t, err)
		after, err := applied(pod, m.Patch)
		require.NoError(t, err)
		drawn.Default(after) // as the API server does after a webhook
		if why := invalid(after) + refusedBy(ranges, after); why != "" {
			t.Fatalf("%s\nbefore: %v\nafter: %v", why, resourcesOf(pod), resourcesOf(after))
		}
	})
	require.NotZero(t, valid)
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
