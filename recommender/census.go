package recommender

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/recommender/model"
)

// vpaState is what VPAs are counted by.
type vpaState struct {
	mode                                        vpav1.UpdateMode
	hasRecommendation, matchesPods, unsupported bool
}

// countVPAs publishes the number of VPAs by state, with a 0 for each combination
// that does not occur. The labels of gauge are update_mode, has_recommendation,
// api, matches_pods and unsupported_config.
func countVPAs(gauge *prometheus.GaugeVec, vpas []*model.VPA) {
	counts := map[vpaState]int{}
	for _, v := range vpas {
		counts[vpaState{convert.Mode(v.Object), v.Published.Recommended, v.Pods() > 0, v.Unsupported()}]++
	}
	for _, mode := range []vpav1.UpdateMode{
		vpav1.UpdateModeOff, vpav1.UpdateModeInitial, vpav1.UpdateModeRecreate,
		vpav1.UpdateModeAuto, vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlace,
	} {
		for bits := range 8 {
			s := vpaState{mode, bits&1 != 0, bits&2 != 0, bits&4 != 0}
			for _, api := range []string{"v1beta1", "v1beta2", "v1"} {
				n := 0
				if api == "v1" { // the only version that is served
					n = counts[s]
				}
				gauge.WithLabelValues(string(mode), strconv.FormatBool(s.hasRecommendation), api,
					strconv.FormatBool(s.matchesPods), strconv.FormatBool(s.unsupported)).Set(float64(n))
			}
		}
	}
}

// countSources counts, by source, where the resources of a pod's containers are
// found.
func countSources(counter *prometheus.CounterVec, pod *corev1.Pod) {
	count := func(containers []corev1.Container, statuses []corev1.ContainerStatus, inStatus, inSpec string) {
		for i := range containers {
			source := inSpec
			for j := range statuses {
				if statuses[j].Name == containers[i].Name && statuses[j].Resources != nil {
					source = inStatus
				}
			}
			counter.WithLabelValues(source).Inc()
		}
	}
	count(pod.Spec.Containers, pod.Status.ContainerStatuses, "Pod.Status.ContainerStatuses", "Pod.Spec.Containers")
	count(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, "Pod.Status.InitContainerStatuses", "Pod.Spec.InitContainers")
}
