package plugintest

import (
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

// Resources returns a list of CPU and memory.
func Resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// OwnedBy returns a reference to a controller.
func OwnedBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: new(true)}}
}

// Shop is a node with three pods of a Deployment that usually use 0.5 cores and at times 1.4, one pod of
// another Deployment during a resize, and one of a DaemonSet without a VPA.
type Shop struct {
	Policy loadlinev1alpha1.SizingPolicy
	VPA    vpav1.VerticalPodAutoscaler
	Pods   map[string]*corev1.Pod
	Node   corev1.Node
	More   []runtime.Object
	Record *loadlinev1alpha1.SizingRecord // of the first Deployment
	Own    []runtime.Object               // further VPAs, policies and records
	Hidden string                         // resource that cannot be listed
}

// NewShop returns a Shop with a policy in a dry run of sharing.
func NewShop() *Shop {
	old := metav1.NewTime(Now().Add(-48 * time.Hour))
	s := &Shop{Pods: map[string]*corev1.Pod{}}
	s.Policy = loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"shop"}}, Recipe: new("cruisekube"),
		Workloads: []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
		Rollout:   &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeAuto)},
		Sharing:   &loadlinev1alpha1.Sharing{Mode: new(loadlinev1alpha1.SharingDryRun)},
	}}
	s.VPA = vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{fleet.PolicyLabel: "shop"}}}
	s.VPA.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
	s.VPA.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: "a", LowerBound: Resources("500m", "150Mi"), Target: Resources("1400m", "200Mi"), UpperBound: Resources("1500m", "250Mi")}}}
	pod := func(namespace, name, app, kind, owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}, OwnerReferences: OwnedBy(kind, owner)}}
		p.Spec.NodeName = "n1"
		p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: Resources("1400m", "200Mi")}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &old, QOSClass: corev1.PodQOSBurstable}
		s.Pods[name] = p
		return p
	}
	for _, app := range []string{"web", "front"} {
		s.More = append(s.More,
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app, CreationTimestamp: old}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: TemplateWith("a")}},
			&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app + "-1", OwnerReferences: OwnedBy("Deployment", app)}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3))}})
	}
	for _, name := range []string{"web-1-c", "web-1-a", "web-1-b"} {
		pod("shop", name, "web", "ReplicaSet", "web-1")
	}
	pod("shop", "front-1-a", "front", "ReplicaSet", "front-1").Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "Node didn't have enough resource: cpu", LastTransitionTime: metav1.NewTime(Before(5))}}
	pod("kube-system", "proxy-a", "proxy", "DaemonSet", "proxy").Spec.Containers[0].Resources.Requests = Resources("100m", "50Mi")
	pod("shop", "job-a", "job", "Job", "job").Status.Phase = corev1.PodSucceeded
	s.Node = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	s.Node.Status.Allocatable = Resources("8", "32Gi")
	s.Node.Status.NodeInfo.KubeletVersion = "v1.35.0"
	s.More = append(s.More, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	return s
}

// Clients returns clients of a cluster with the shop.
func (s *Shop) Clients() (*kubefake.Clientset, *fake.Clientset) {
	objects := append([]runtime.Object{&s.Node}, s.More...)
	for _, p := range s.Pods {
		objects = append(objects, p)
	}
	own := append([]runtime.Object{&s.Policy}, s.Own...)
	for _, app := range []string{"web", "front"} {
		v := s.VPA.DeepCopy()
		v.Name, v.Spec.TargetRef = "deployment-"+app, &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: app}
		own = append(own, v)
	}
	if s.Record != nil {
		own = append(own, s.Record)
	}
	kube := kubefake.NewClientset(objects...)
	kube.PrependReactor("list", s.Hidden, func(a clienttesting.Action) (bool, runtime.Object, error) {
		return s.Hidden != "", nil, errors.New("forbidden")
	})
	return kube, fake.NewSimpleClientset(own...)
}

// TemplateWith returns a pod template with some containers.
func TemplateWith(containers ...string) (t corev1.PodTemplateSpec) {
	for _, c := range containers {
		t.Spec.Containers = append(t.Spec.Containers, corev1.Container{Name: c, Image: "x", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}})
	}
	return t
}

// Forbid refuses lists of a resource.
func Forbid(fake *clienttesting.Fake, resource string) {
	fake.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	})
}
