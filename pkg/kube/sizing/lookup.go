package sizing

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/target"
)

// Lookup decides about the target of a VPA with requests in place of caches, for commands
// that people run. Where the definition is not installed there are no policies.
func Lookup(ctx context.Context, kube kubernetes.Interface, own versioned.Interface, vpa *vpav1.VerticalPodAutoscaler) (fleet.Decision, error) {
	policies, err := own.LoadlineV1alpha1().SizingPolicies().List(ctx, metav1.ListOptions{})
	made := convert.MadeForPolicy(vpa)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fleet.Decision{}, fmt.Errorf("list SizingPolicies: %w", err)
	case err != nil:
		policies = &loadlinev1alpha1.SizingPolicyList{}
	}
	if vpa.Spec.TargetRef == nil || len(policies.Items) == 0 && !made {
		return fleet.Decision{}, nil
	}
	key := target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	workload, err := read(ctx, kube, key)
	if err != nil {
		return fleet.Decision{}, fmt.Errorf("read %s: %w", key, err)
	}
	namespace, err := kube.CoreV1().Namespaces().Get(ctx, vpa.Namespace, metav1.GetOptions{})
	if err != nil {
		return fleet.Decision{}, fmt.Errorf("read namespace %s: %w", vpa.Namespace, err)
	}
	described, values := describe(workload, namespace), make([]fleet.Policy, 0, len(policies.Items))
	described.VPA = Author(vpa, made)
	for i := range policies.Items {
		values = append(values, convert.Policy(&policies.Items[i]))
	}
	return Decide(fleet.NewSet(values, fleet.Options{}), described), nil
}

// read reads a workload. One of another kind than those that can be selected by their
// labels, or one that is not there, has only a name.
func read(ctx context.Context, kube kubernetes.Interface, key target.Key) (target.Workload, error) {
	var object any
	var err error
	if key.Group == "" {
		switch key.Kind {
		case "Deployment":
			object, err = kube.AppsV1().Deployments(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		case "StatefulSet":
			object, err = kube.AppsV1().StatefulSets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		case "DaemonSet":
			object, err = kube.AppsV1().DaemonSets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		case "CronJob":
			object, err = kube.BatchV1().CronJobs(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return target.Workload{}, err
	}
	if w, found := target.WorkloadOf(object); found && err == nil {
		return w, nil
	}
	return target.Workload{Key: key}, nil
}
