package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
)

type countingPods struct {
	corelisters.PodLister
	lists *int
}

type countingNamespacePods struct {
	corelisters.PodNamespaceLister
	lists *int
}

func (c countingPods) Pods(namespace string) corelisters.PodNamespaceLister {
	return countingNamespacePods{c.PodLister.Pods(namespace), c.lists}
}

func (c countingNamespacePods) List(selector labels.Selector) ([]*corev1.Pod, error) {
	*c.lists++
	return c.PodNamespaceLister.List(selector)
}

type countingVPAs struct {
	vpalisters.VerticalPodAutoscalerLister
	lists *int
}

type countingNamespaceVPAs struct {
	vpalisters.VerticalPodAutoscalerNamespaceLister
	lists *int
}

func (c countingVPAs) VerticalPodAutoscalers(namespace string) vpalisters.VerticalPodAutoscalerNamespaceLister {
	return countingNamespaceVPAs{c.VerticalPodAutoscalerLister.VerticalPodAutoscalers(namespace), c.lists}
}

func (c countingNamespaceVPAs) List(selector labels.Selector) ([]*vpav1.VerticalPodAutoscaler, error) {
	*c.lists++
	return c.VerticalPodAutoscalerNamespaceLister.List(selector)
}

// Users may create many VPAs and pods, and each pod event looks up its VPA.
func TestReaderControlling_ListsNoUnrelatedVPAs(t *testing.T) {
	var objects []runtime.Object
	for i := range 20 {
		name := fmt.Sprint("web-", i)
		objects = append(objects, targeting(name, "shop", "apps/v1", "StatefulSet", name), controlled("shop", name+"-0", "apps/v1", "StatefulSet", name),
			&appsv1.StatefulSet{ObjectMeta: meta("shop", name), Spec: appsv1.StatefulSetSpec{Selector: selector(), Replicas: new(int32(1))}})
	}
	r, lists := newReader(t, objects...), 0
	r.VPAs = countingVPAs{r.VPAs, &lists}
	reading, found, err := r.Controlling(t.Context(), objects[1+3*7].(*corev1.Pod), false)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "web-7", reading.Object.Name)
	require.Zero(t, lists, "5,000 VPAs took a millisecond for each event of a pod")
}

func TestReaderControlsAny_ListsNamespacePodsOnce(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var objects []runtime.Object
	rose := map[string]bool{}
	for i := range 20 {
		name := fmt.Sprint("web-", i)
		vpa := targeting(name, "shop", "apps/v1", "StatefulSet", name)
		vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeInPlace)}
		objects = append(objects, vpa, &appsv1.StatefulSet{ObjectMeta: meta("shop", name), Spec: appsv1.StatefulSetSpec{Selector: selector()}})
		rose[vpa.Name] = true
	}
	pod := controlled("shop", "web-19-0", "apps/v1", "StatefulSet", "web-19")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: convert.OOMKilled, FinishedAt: metav1.NewTime(now)}}}}
	r, lists := newReader(t, append(objects, pod)...), 0
	r.Pods = countingPods{r.Pods, &lists}
	killed := func(p *corev1.Pod) bool { return p.Status.ContainerStatuses != nil }
	require.True(t, r.ControlsAny(t.Context(), "shop", rose, killed))
	delete(rose, "web-19")
	require.False(t, r.ControlsAny(t.Context(), "shop", rose, killed), "the pod of another VPA")
	require.Equal(t, 2, lists)
}
