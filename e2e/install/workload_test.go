package install

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/e2e/harness"
)

// image is the only image of the node that is not part of Loadline. See hack/cluster/burn.
const image = "loadline.dev/burn:local"

// busy is a container that uses five times its CPU request.
var busy = harness.Container{Name: "app", CPU: "30m", Memory: "64Mi", CPULimit: "300m", MemoryLimit: "128Mi"}

func run(t *testing.T, namespace, name string, replicas int32) harness.Workload {
	t.Helper()
	w := harness.Workload{Namespace: namespace, Name: name, Replicas: replicas, Containers: []harness.Container{busy}}
	require.NoError(t, cluster.CreateNamespace(t.Context(), namespace))
	template := template(w)
	_, err := cluster.Kube.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	awaitRunning(t, w)
	return w
}

func template(w harness.Workload) corev1.PodTemplateSpec {
	template := w.Template()
	container := &template.Spec.Containers[0]
	container.Image, container.ImagePullPolicy = image, corev1.PullNever
	container.Args = []string{"-cpu=150m", "-memory=30Mi"}
	return template
}

func awaitRunning(t *testing.T, w harness.Workload) (running []corev1.Pod) {
	t.Helper()
	eventually(t, 2*time.Minute, w.Name+" runs", func() (err error) {
		if running, err = cluster.Pods(t.Context(), w); err != nil {
			return err
		}
		for i := range running {
			if !ready(&running[i]) {
				return fmt.Errorf("%s is %s", running[i].Name, running[i].Status.Phase)
			}
		}
		if len(running) != int(w.Replicas) {
			return fmt.Errorf("%d pods: want %d", len(running), w.Replicas)
		}
		return nil
	})
	return running
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func scale(t *testing.T, w *harness.Workload, replicas int32) {
	t.Helper()
	w.Replicas = replicas
	_, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Patch(t.Context(), w.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	require.NoError(t, err)
}

func remove(t *testing.T, namespace string) {
	t.Helper()
	require.NoError(t, cluster.Kube.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	eventually(t, 2*time.Minute, "namespace "+namespace+" is gone", func() error {
		_, err := cluster.Kube.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// webhookAnnotation is set by the webhook on each pod that it changes.
const webhookAnnotation = "vpaUpdates"

func sized(pod *corev1.Pod) bool {
	return pod.Annotations[webhookAnnotation] != "" && grown(pod)
}

func grown(pod *corev1.Pod) bool {
	return pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() > 30
}

func inForce(pod *corev1.Pod) bool {
	if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].Resources == nil {
		return false
	}
	asked, has := pod.Spec.Containers[0].Resources, pod.Status.ContainerStatuses[0].Resources
	return asked.Requests.Cpu().Equal(*has.Requests.Cpu()) && asked.Requests.Memory().Equal(*has.Requests.Memory())
}

func awaitResized(t *testing.T, w harness.Workload, before []corev1.Pod) {
	t.Helper()
	known := map[types.UID]string{}
	for _, pod := range before {
		known[pod.UID] = pod.Status.ContainerStatuses[0].ContainerID
	}
	eventually(t, 5*time.Minute, "a pod of "+w.Name+" is resized", func() error {
		now, err := cluster.Pods(t.Context(), w)
		if err != nil {
			return err
		}
		for i := range now {
			if container := known[now[i].UID]; container != "" && grown(&now[i]) && inForce(&now[i]) {
				require.Equal(t, container, now[i].Status.ContainerStatuses[0].ContainerID, "the container was replaced")
				return nil
			}
		}
		return fmt.Errorf("none of %d pods", len(now))
	})
}

func awaitSizedAtCreation(t *testing.T, w *harness.Workload) {
	t.Helper()
	known := map[types.UID]bool{}
	for _, pod := range awaitRunning(t, *w) {
		known[pod.UID] = true
	}
	scale(t, w, w.Replicas+1)
	for _, pod := range awaitRunning(t, *w) {
		if !known[pod.UID] {
			require.True(t, sized(&pod), "the new pod asks for %v", pod.Spec.Containers[0].Resources.Requests)
		}
	}
}
