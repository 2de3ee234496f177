package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// The real node, the taint that keeps other pods away, and its only image.
const (
	realNode = "real-1"
	taint    = "sim.loadline.dev/real"
	image    = "loadline.dev/burn:local"
)

// burner is a pod on the real node that uses resources by schedule, see hack/cluster/burn.
type burner struct {
	harness.Container
	cpu, memory string // usage schedules
}

// run creates a Deployment with the pod in its own namespace. Both are deleted when the test ends.
func run(t *testing.T, name string, b burner) harness.Workload {
	t.Helper()
	w := harness.Workload{Namespace: name, Name: name}
	require.NoError(t, cluster.CreateNamespace(t.Context(), name))
	create(t, &w, b)
	return w
}

func create(t *testing.T, w *harness.Workload, b burner) {
	t.Helper()
	b.Name = "app"
	w.Replicas, w.Containers = max(w.Replicas, 1), []harness.Container{b.Container}
	template := w.Template()
	template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: realNode}
	template.Spec.Tolerations = []corev1.Toleration{{Key: taint, Operator: corev1.TolerationOpExists}}
	container := &template.Spec.Containers[0]
	container.Image, container.ImagePullPolicy = image, corev1.PullNever
	container.Args = []string{"-cpu=" + b.cpu, "-memory=" + b.memory}
	_, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &w.Replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { remove(t, *w) })
}

func remove(t *testing.T, w harness.Workload) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := cluster.Kube.AppsV1().Deployments(w.Namespace).Delete(ctx, w.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete deployment %s: %v", w.Name, err)
	}
	for ctx.Err() == nil {
		list, err := cluster.Kube.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.Name})
		if err == nil && len(list.Items) == 0 {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Errorf("the pods of %s did not go", w.Name)
}

func control(t *testing.T, w harness.Workload, mode vpav1.UpdateMode, change ...func(*vpav1.VerticalPodAutoscaler)) {
	t.Helper()
	one := int32(1)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, mode, append(change, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.UpdatePolicy.MinReplicas = &one
	})...))
}

func onlyPod(ctx context.Context, w harness.Workload) (*corev1.Pod, error) {
	pods, err := cluster.Pods(ctx, w)
	if err != nil {
		return nil, err
	}
	if len(pods) != 1 {
		return nil, fmt.Errorf("%s has %d pods: want 1", w.Name, len(pods))
	}
	return &pods[0], nil
}

func awaitRunning(t *testing.T, w harness.Workload) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, time.Minute, w.Name+" runs", func() (err error) {
		if pod, err = onlyPod(t.Context(), w); err != nil {
			return err
		}
		return running(pod)
	})
	return pod
}

func running(pod *corev1.Pod) error {
	if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return fmt.Errorf("pod %s is %s: %+v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
	}
	return nil
}

func target(ctx context.Context, w harness.Workload) (corev1.ResourceList, error) {
	vpa, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if r := vpa.Status.Recommendation; r != nil && len(r.ContainerRecommendations) == 1 {
		return r.ContainerRecommendations[0].Target, nil
	}
	return nil, fmt.Errorf("VPA %s has no recommendation: %+v", w.Name, vpa.Status)
}

// checkApplied returns an error unless kubelet and kernel have applied the resources of the pod's
// spec.
func checkApplied(pod *corev1.Pod) error {
	if err := running(pod); err != nil {
		return err
	}
	asked, has := pod.Spec.Containers[0].Resources, pod.Status.ContainerStatuses[0].Resources
	for _, kind := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if has == nil || !same(asked.Requests, has.Requests, kind) || !same(asked.Limits, has.Limits, kind) {
			return fmt.Errorf("pod %s asks for %+v and runs with %+v", pod.Name, asked, has)
		}
	}
	kernel, err := readEnforced(pod)
	if err != nil {
		return err
	}
	return kernel.follows(pod)
}

func same(a, b corev1.ResourceList, kind corev1.ResourceName) bool {
	first, second := a[kind], b[kind]
	return first.Cmp(second) == 0
}

func request(pod *corev1.Pod, kind corev1.ResourceName) resource.Quantity {
	return pod.Spec.Containers[0].Resources.Requests[kind]
}

func resizing(pod *corev1.Pod, kind corev1.PodConditionType) (corev1.PodCondition, bool) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return condition, true
		}
	}
	return corev1.PodCondition{}, false
}

func restarts(pod *corev1.Pod) int32 { return pod.Status.ContainerStatuses[0].RestartCount }
