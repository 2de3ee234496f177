package target

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// Template reads the pod template of a workload from the API server. Nil and known: the workload does not
// exist, or has none. Templates of custom resources are not known. It lists by name, because the programs
// may list these kinds but not get them.
func Template(ctx context.Context, kube kubernetes.Interface, key Key) (template *corev1.PodSpec, known bool, err error) {
	if err := key.check(); err != nil || !key.wellKnown() {
		return nil, false, nil //nolint:nilerr // a workload of that name cannot exist
	}
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name).String()}
	switch key.Kind {
	case "Deployment":
		list, err := kube.AppsV1().Deployments(key.Namespace).List(ctx, only)
		return templateOf(list, err, key, func(l *appsv1.DeploymentList) []appsv1.Deployment { return l.Items }, func(o *appsv1.Deployment) (string, *corev1.PodTemplateSpec) { return o.Name, &o.Spec.Template })
	case "ReplicaSet":
		list, err := kube.AppsV1().ReplicaSets(key.Namespace).List(ctx, only)
		return templateOf(list, err, key, func(l *appsv1.ReplicaSetList) []appsv1.ReplicaSet { return l.Items }, func(o *appsv1.ReplicaSet) (string, *corev1.PodTemplateSpec) { return o.Name, &o.Spec.Template })
	case "StatefulSet":
		list, err := kube.AppsV1().StatefulSets(key.Namespace).List(ctx, only)
		return templateOf(list, err, key, func(l *appsv1.StatefulSetList) []appsv1.StatefulSet { return l.Items }, func(o *appsv1.StatefulSet) (string, *corev1.PodTemplateSpec) { return o.Name, &o.Spec.Template })
	case "DaemonSet":
		list, err := kube.AppsV1().DaemonSets(key.Namespace).List(ctx, only)
		return templateOf(list, err, key, func(l *appsv1.DaemonSetList) []appsv1.DaemonSet { return l.Items }, func(o *appsv1.DaemonSet) (string, *corev1.PodTemplateSpec) { return o.Name, &o.Spec.Template })
	case "ReplicationController":
		list, err := kube.CoreV1().ReplicationControllers(key.Namespace).List(ctx, only)
		return templateOf(list, err, key, func(l *corev1.ReplicationControllerList) []corev1.ReplicationController { return l.Items }, func(o *corev1.ReplicationController) (string, *corev1.PodTemplateSpec) {
			return o.Name, o.Spec.Template
		})
	case "Job":
		list, err := kube.BatchV1().Jobs(key.Namespace).List(ctx, only)
		return templateOf(list, err, key, func(l *batchv1.JobList) []batchv1.Job { return l.Items }, func(o *batchv1.Job) (string, *corev1.PodTemplateSpec) { return o.Name, &o.Spec.Template })
	default:
		list, err := kube.BatchV1().CronJobs(key.Namespace).List(ctx, only)
		return templateOf(list, err, key, func(l *batchv1.CronJobList) []batchv1.CronJob { return l.Items }, func(o *batchv1.CronJob) (string, *corev1.PodTemplateSpec) {
			return o.Name, &o.Spec.JobTemplate.Spec.Template
		})
	}
}

// templateOf returns the template of the workload with the name of a key.
func templateOf[L, O any](list *L, err error, key Key, items func(*L) []O, of func(*O) (string, *corev1.PodTemplateSpec)) (*corev1.PodSpec, bool, error) {
	if err != nil {
		return nil, false, fmt.Errorf("read %s in namespace %s: %w", key, key.Namespace, err)
	}
	all := items(list)
	for i := range all {
		if name, template := of(&all[i]); name == key.Name && template != nil {
			return &template.Spec, true, nil
		}
	}
	return nil, true, nil
}

// Has reports whether a cache has an object of a well-known kind.
func (r *Resolver) Has(key Key) bool {
	if !key.wellKnown() {
		return false
	}
	_, err := r.workloads.lookup(key)
	return err == nil
}
