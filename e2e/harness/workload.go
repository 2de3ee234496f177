package harness

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// Container is one container of a Workload. Empty quantities are omitted.
type Container struct {
	Name                  string
	CPU, Memory           string // requests
	CPULimit, MemoryLimit string
}

// Requests returns the requests of the container.
func (c Container) Requests() corev1.ResourceList { return resources(c.CPU, c.Memory) }

// Workload is a Deployment of simulated pods.
type Workload struct {
	Namespace, Name string
	Replicas        int32
	Containers      []Container
	Annotations     map[string]string // of the pods: usage that the simulated node plays
	Node            string            // node of the pods, empty: any
	Tolerate        string            // taint of that node
	Scheduler       string            // scheduler of the pods, empty: the default
}

// CreateNamespace creates a namespace, unless it exists.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	_, err := c.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// CreateWorkload creates the Deployment.
func (c *Cluster) CreateWorkload(ctx context.Context, w Workload) error {
	template := w.Template()
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &w.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: template,
		},
	}
	if _, err := c.Kube.AppsV1().Deployments(w.Namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create deployment %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// Template returns the pod template of the workload.
func (w Workload) Template() corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": w.Name}, Annotations: w.Annotations},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), SchedulerName: w.Scheduler},
	}
	if w.Node != "" {
		template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: w.Node}
	}
	if w.Tolerate != "" {
		template.Spec.Tolerations = []corev1.Toleration{{Key: w.Tolerate, Operator: corev1.TolerationOpExists}}
	}
	for _, container := range w.Containers {
		template.Spec.Containers = append(template.Spec.Containers, corev1.Container{
			Name:  container.Name,
			Image: "simulated",
			Resources: corev1.ResourceRequirements{
				Requests: container.Requests(),
				Limits:   resources(container.CPULimit, container.MemoryLimit),
			},
		})
	}
	return template
}

func resources(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

// CreateVPA creates a VPA with the name of the workload. The change functions modify it first.
func (c *Cluster) CreateVPA(ctx context.Context, w Workload, mode vpav1.UpdateMode, change ...func(*vpav1.VerticalPodAutoscaler)) error {
	vpa := &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:    &autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: w.Name},
			UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &mode},
		},
	}
	for _, f := range change {
		f(vpa)
	}
	if _, err := c.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).Create(ctx, vpa, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create VPA %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// Pods lists the non-terminating pods of a workload, sorted by name.
func (c *Cluster) Pods(ctx context.Context, w Workload) ([]corev1.Pod, error) {
	list, err := c.Kube.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.Name})
	if err != nil {
		return nil, fmt.Errorf("list pods of %s/%s: %w", w.Namespace, w.Name, err)
	}
	pods := list.Items[:0]
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}
