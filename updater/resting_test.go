package updater

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/rollout"
)

// withTargetResources gives a pod the resources that the VPA of newRolling recommends.
func withTargetResources(p *corev1.Pod) {
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("50m", "50Mi"), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")}}
	p.Annotations = map[string]string{"vpaObservedContainers": "app"}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true, Resources: &p.Spec.Containers[0].Resources}}
}

func TestObservedPods_ZeroAtRest(t *testing.T) {
	note := convert.FormatChange(rollout.Change{At: noon.Add(-time.Minute), Containers: []rollout.ContainerChange{{
		From: policy.Container{Name: "app"}, To: policy.Container{Name: "app"},
	}}})
	w := newWorld(t, Default(), append(deployment(2, func(p *corev1.Pod) {
		withTargetResources(p)
		maps.Copy(p.Annotations, note)
	}), lowering(generatedVPA()), autoPolicy(), healthy("n1"))...)
	w.runOnce(noon)
	require.EqualValues(t, 2, w.value("loadline_updater_observed_pods"))
	for _, name := range []string{"web-1-0", "web-1-1"} {
		w.change(name, func(p *corev1.Pod) {
			maps.DeleteFunc(p.Annotations, func(key, _ string) bool { _, noted := note[key]; return noted })
		})
		w.await("that no change is noted", func(p *corev1.Pod) bool { return !convert.HasNotedChange(p) }, name)
	}
	w.runOnce(noon.Add(time.Minute))
	require.Zero(t, w.value("loadline_updater_observed_pods"))
}
