package target

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// Template reads the pod template of a workload from the API server. Nil and known: the workload does not
// exist, or has none. Templates of custom resources are not known. It lists by name, because the programs
// may list these kinds but not get them.
func Template(ctx context.Context, kube kubernetes.Interface, key Key) (template *corev1.PodSpec, known bool, err error) {
	if err := key.check(); err != nil || !key.wellKnown() {
		return nil, false, nil //nolint:nilerr // a workload of that name cannot exist
	}
	list, err := listNamed(ctx, kube, key)
	if err != nil {
		return nil, false, fmt.Errorf("read %s in namespace %s: %w", key, key.Namespace, err)
	}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		if o, ok := object.(metav1.Object); ok && o.GetName() == key.Name {
			if of := templateOf(object); of != nil {
				template = &of.Spec
			}
		}
		return nil
	})
	return template, err == nil, err
}

// listNamed lists the object of a well-known kind that has the name of a key.
func listNamed(ctx context.Context, kube kubernetes.Interface, key Key) (runtime.Object, error) {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name).String()}
	switch key.Kind {
	case "Deployment":
		return kube.AppsV1().Deployments(key.Namespace).List(ctx, only)
	case "ReplicaSet":
		return kube.AppsV1().ReplicaSets(key.Namespace).List(ctx, only)
	case "StatefulSet":
		return kube.AppsV1().StatefulSets(key.Namespace).List(ctx, only)
	case "DaemonSet":
		return kube.AppsV1().DaemonSets(key.Namespace).List(ctx, only)
	case "ReplicationController":
		return kube.CoreV1().ReplicationControllers(key.Namespace).List(ctx, only)
	case "Job":
		return kube.BatchV1().Jobs(key.Namespace).List(ctx, only)
	default:
		return kube.BatchV1().CronJobs(key.Namespace).List(ctx, only)
	}
}

// Has reports whether a cache has an object of a well-known kind.
func (r *Resolver) Has(key Key) bool {
	if !key.wellKnown() {
		return false
	}
	_, err := r.workloads.lookup(key)
	return err == nil
}
