package convert

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

const maxListed = 5

// UnknownContainer returns a message if a container policy of a VPA names no container of a
// workload, else an empty string. It returns no message if the containers are unknown. A container
// with a recommendation exists even if no pod template has it, such as one that a webhook adds.
func UnknownContainer(vpa *vpav1.VerticalPodAutoscaler, container, workload string, pods ...*corev1.PodSpec) string {
	pods = slices.DeleteFunc(pods, func(p *corev1.PodSpec) bool { return p == nil })
	if container == "" || container == vpav1.DefaultContainerResourcePolicy || len(pods) == 0 {
		return ""
	}
	if _, recommended := Recommendation(vpa.Status.Recommendation)[container]; recommended {
		return ""
	}
	var names []string
	isInit := false
	named := func(c corev1.Container) bool { return c.Name == container }
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Containers, named) {
			return ""
		}
		isInit = isInit || slices.ContainsFunc(pod.InitContainers, named)
		for i := range pod.Containers {
			names = append(names, pod.Containers[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	container = fmt.Sprintf("%.63q", container) // the maximum length of a name
	if isInit {
		return fmt.Sprintf("%s is an init container of %s: the policy has no effect, because init containers are not resized", container, workload)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > maxListed {
		names, more = names[:maxListed], ", ..."
	}
	return fmt.Sprintf("%s is no container of %s, which has %s%s: the policy has no effect, unless a webhook adds that container",
		container, workload, strings.Join(names, ", "), more)
}
