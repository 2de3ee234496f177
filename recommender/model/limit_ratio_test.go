package model

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/sketch"
)

// podWithMemory returns a pod with resources of container a. An empty string sets none.
func podWithMemory(name, request, limit string) *corev1.Pod {
	p := aPod(name, labels.Set{"app": "x"}, "a", "b")
	r := &p.Spec.Containers[0].Resources
	r.Requests, r.Limits = corev1.ResourceList{}, corev1.ResourceList{}
	for list, text := range map[*corev1.ResourceList]string{&r.Requests: request, &r.Limits: limit} {
		if text != "" {
			(*list)[corev1.ResourceMemory] = resource.MustParse(text)
		}
	}
	return p
}

func TestLimitRatio_UsesTightestPod(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	v := m.Find("ns", "v")
	is := func(want sketch.LimitRatio, why string) {
		t.Helper()
		require.Equal(t, want, v.LimitRatio("a"), why)
	}
	is(sketch.UnknownRatio, "there is no pod")
	m.PutPod(podWithMemory("p1", "100Mi", "200Mi"), now())
	is(200, "")
	m.PutPod(podWithMemory("p2", "50Mi", "60Mi"), now())
	is(120, "pods disagree")
	m.PutPod(podWithMemory("p1", "300Mi", "600Mi"), now())
	is(120, "one was resized, and keeps its ratio")
	m.PutPod(podWithMemory("p3", "100Mi", ""), now())
	is(120, "one has no limit")
	gone := podWithMemory("p4", "100Mi", "100Mi")
	m.PutPod(gone, now())
	is(100, "")
	gone = gone.DeepCopy()
	gone.Status.Phase = corev1.PodSucceeded
	m.PutPod(gone, now())
	is(120, "what is over does not count")
	m.RemovePod("ns", "p2")
	is(200, "")
	m.RemovePod("ns", "p1")
	is(sketch.NoLimitRatio, "")
	m.PutPod(podWithMemory("p3", "", "100Mi"), now())
	is(100, "a limit without request")
	followed := podWithMemory("p3", "60Mi", "180Mi")
	followed.Annotations = map[string]string{convert.DeclaredAnnotation: `{"a":{"requests":{"memory":"100Mi"},"limits":{"memory":"150Mi"}}}`}
	m.PutPod(followed, now())
	is(150, "what it was declared with counts, where its request follows use")
	require.Equal(t, sketch.NoLimitRatio, v.LimitRatio("b"))
	require.Equal(t, sketch.UnknownRatio, v.LimitRatio("c"))

	only := vpav1.ContainerControlledValuesRequestsOnly
	object := newObserved("v", "x", 1)
	object.Object.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "a", ControlledValues: &only}}}
	m.SyncVPAs([]Observed{object}, now())
	is(sketch.NoLimitRatio, "the limit stands still")
}

func TestPodTemplate_SharedByEqualPods(t *testing.T) {
	m, _ := newModel(Config{})
	m.PutPod(podWithMemory("p1", "100Mi", "120Mi"), now())
	m.PutPod(podWithMemory("p2", "104857601", "125829121"), now())
	pods := m.namespaces["ns"].pods
	require.Same(t, pods["p1"].podTemplate, pods["p2"].podTemplate)
	m.PutPod(podWithMemory("p2", "100Mi", "100Mi"), now())
	require.NotSame(t, pods["p1"].podTemplate, pods["p2"].podTemplate)
	require.Equal(t, []string{"a", "b"}, pods["p2"].containers)
}
