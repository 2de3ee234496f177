package convert

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/core/resources"
)

func resizes(p *corev1.Pod, has corev1.ResourceList, reason string) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", Resources: &corev1.ResourceRequirements{Requests: has}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason}}
}

func TestFootprint_CountsRequestsOfPod(t *testing.T) {
	cpu := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
	}
	container := func(name, request string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: cpu(request)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("side", "30m")
	sidecar.RestartPolicy = &always
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   resources.Amount
	}{
		"the sum":                      {func(*corev1.Pod) {}, 300},
		"a sidecar counts":             {func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{sidecar} }, 330},
		"a small init container":       {func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{container("init", "200m")} }, 300},
		"a large one after a sidecar":  {func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{sidecar, container("init", "900m")} }, 930},
		"a large one before a sidecar": {func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{container("init", "900m"), sidecar} }, 900},
		"a resize that shrinks": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", Resources: &corev1.ResourceRequirements{Requests: cpu("150m")}}}
		}, 350},
		"a resize that waits":             {func(p *corev1.Pod) { resizes(p, cpu("50m"), corev1.PodReasonDeferred) }, 300},
		"a resize that can never be done": {func(p *corev1.Pod) { resizes(p, cpu("50m"), corev1.PodReasonInfeasible) }, 250},
		"overhead":                        {func(p *corev1.Pod) { p.Spec.Overhead = cpu("5m") }, 305},
		"the whole pod, which still has more": {func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("2")}
			p.Status.Resources = &corev1.ResourceRequirements{Requests: cpu("3")}
		}, 3000},
		"the whole pod, whose growth is allocated": {func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("2")}
			p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: cpu("1")}, cpu("4")
		}, 4000},
		"the whole pod, whose growth can never be done": {func(p *corev1.Pod) {
			resizes(p, cpu("50m"), corev1.PodReasonInfeasible)
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("2")}
			p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: cpu("1")}, cpu("1")
		}, 1000},
		"the whole pod": {func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("2")} }, 2000},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("a", "100m"), container("b", "200m")}}}
		c.change(p)
		require.Equal(t, c.want, Footprint(p).Value(resources.CPU), name)
		require.False(t, Footprint(p).Has(resources.Memory), name)
	}
}
