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
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   resources.Amount
	}{
		{name: "sum of the containers", change: func(*corev1.Pod) {}, want: 300},
		{name: "sidecar", change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{sidecar} }, want: 330},
		{
			name:   "small init container",
			change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{container("init", "200m")} }, want: 300,
		},
		{
			name:   "large init container after a sidecar",
			change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{sidecar, container("init", "900m")} }, want: 930,
		},
		{
			name:   "large init container before a sidecar",
			change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{container("init", "900m"), sidecar} }, want: 900,
		},
		{name: "resize that shrinks", change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", Resources: &corev1.ResourceRequirements{Requests: cpu("150m")}}}
		}, want: 350},
		{name: "deferred resize", change: func(p *corev1.Pod) { resizes(p, cpu("50m"), corev1.PodReasonDeferred) }, want: 300},
		{name: "infeasible resize", change: func(p *corev1.Pod) { resizes(p, cpu("50m"), corev1.PodReasonInfeasible) }, want: 250},
		{name: "overhead", change: func(p *corev1.Pod) { p.Spec.Overhead = cpu("5m") }, want: 305},
		{name: "pod resources with a larger status", change: func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("2")}
			p.Status.Resources = &corev1.ResourceRequirements{Requests: cpu("3")}
		}, want: 3000},
		{name: "pod resources with a larger allocation", change: func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("2")}
			p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: cpu("1")}, cpu("4")
		}, want: 4000},
		{name: "pod resources with an infeasible resize", change: func(p *corev1.Pod) {
			resizes(p, cpu("50m"), corev1.PodReasonInfeasible)
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("2")}
			p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: cpu("1")}, cpu("1")
		}, want: 1000},
		{
			name: "pod resources", change: func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("2")} },
			want: 2000,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("a", "100m"), container("b", "200m")}}}
			tc.change(p)
			require.Equal(t, tc.want, Footprint(p).Value(resources.CPU))
			require.False(t, Footprint(p).Has(resources.Memory))
		})
	}
}
