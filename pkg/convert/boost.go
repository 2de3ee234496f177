package convert

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
)

// UnboostedRequests returns the requests in force in a container of a running pod without a
// startup boost. The CPU of a boosted container is the target of the VPA if the VPA sizes pods,
// else the CPU before the boost. It is absent if unknown, and never above the current request.
// The VPA may be nil.
func UnboostedRequests(pod *corev1.Pod, container *corev1.Container, vpa *vpav1.VerticalPodAutoscaler) resources.List {
	requests := Resources(Current(pod, *container).Requests)
	annotation, boosted := pod.Annotations[BoostAnnotationPrefix+container.Name]
	if cpu, has := requests.Get(resources.CPU); boosted && has {
		requests = requests.Without(resources.CPU)
		if unboosted, known := unboostedCPU(annotation, container.Name, vpa); known {
			requests = requests.With(resources.CPU, min(cpu, unboosted))
		}
	}
	return requests
}

// unboostedCPU returns the CPU request, in millicores, of a boosted container after its boost.
func unboostedCPU(annotation, container string, vpa *vpav1.VerticalPodAutoscaler) (cpu resources.Amount, known bool) {
	if vpa != nil && (Mode(vpa) != vpav1.UpdateModeOff || MadeForPolicy(vpa)) {
		if cpu, known = Recommendation(vpa.Status.Recommendation)[container].Target.Get(resources.CPU); known {
			return cpu, true
		}
	}
	var o original
	if json.Unmarshal([]byte(annotation), &o) != nil {
		return 0, false
	}
	return Resources(corev1.ResourceList(o.Requests)).Get(resources.CPU)
}
