// Package testkit builds objects for tests, so that a test sets only the relevant fields.
//
// Pod, VPA and LimitRange build API objects from short texts such as "cpu=100m memory=200Mi". They
// panic on an invalid text. AllRivals returns cases that several programs must decide alike.
// CrowdServer is the API server of a large cluster, for measuring the memory of programs.
// Production code must not import the package.
package testkit

import (
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// Namespace is the namespace of all built objects.
const Namespace = "default"

// List parses "cpu=100m memory=200Mi". An empty text returns nil.
func List(text string) corev1.ResourceList {
	if text == "" {
		return nil
	}
	list := corev1.ResourceList{}
	for word := range strings.FieldsSeq(text) {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			panic(fmt.Sprintf("%q is no resource: write name=quantity", word))
		}
		list[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return list
}

// Container builds a container from its requests and limits.
func Container(name, requests, limits string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: List(requests), Limits: List(limits)}}
}

// Pod builds a pod owned by the ReplicaSet "web-1".
func Pod(name string, containers ...corev1.Container) *corev1.Pod {
	controller := true
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: Namespace,
			Labels:          map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", Controller: &controller}},
		},
		Spec: corev1.PodSpec{Containers: containers},
	}
}

// VPA builds a VPA of the Deployment "web" and applies changes.
func VPA(name string, changes ...func(*vpav1.VerticalPodAutoscaler)) *vpav1.VerticalPodAutoscaler {
	vpa := &vpav1.VerticalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: vpav1.SchemeGroupVersion.String(), Kind: "VerticalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
	}
	for _, change := range changes {
		change(vpa)
	}
	return vpa
}

// Mode sets the update mode of a VPA.
func Mode(mode vpav1.UpdateMode) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: &mode}
	}
}

// Recommend adds a recommendation for a container to a VPA.
func Recommend(container, target string) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		if vpa.Status.Recommendation == nil {
			vpa.Status.Recommendation = &vpav1.RecommendedPodResources{}
		}
		r := vpa.Status.Recommendation
		r.ContainerRecommendations = append(r.ContainerRecommendations, vpav1.RecommendedContainerResources{ContainerName: container, Target: List(target)})
	}
}

// Policy adds a container policy to a VPA.
func Policy(policy vpav1.ContainerResourcePolicy) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		if vpa.Spec.ResourcePolicy == nil {
			vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{}
		}
		vpa.Spec.ResourcePolicy.ContainerPolicies = append(vpa.Spec.ResourcePolicy.ContainerPolicies, policy)
	}
}

// LimitRange builds a LimitRange from its items.
func LimitRange(name string, items ...corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec:       corev1.LimitRangeSpec{Limits: items},
	}
}
