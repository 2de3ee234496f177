package actuate

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// controller is the owner of a pod as the API server has it now.
type controller struct {
	ref      metav1.OwnerReference
	selector labels.Selector
	wanted   int // replicas; disruption.Unknown: not stated

	template *corev1.PodTemplateSpec // nil: not readable, as for custom workloads
	claims   []string                // volumes that come from claim templates
	daemon   bool                    // its pods are bound to nodes by their affinity
	// Of a StatefulSet: pods with lower ordinals than the partition that do not have the update
	// revision are created from an older template.
	partition int
	revision  string

	unversioned bool // the template can change, and pods have no revision label
}

// errNoOwner is the error for an owner that is gone or about to be deleted.
var errNoOwner = errors.New("the owner does not exist or is being deleted")

// readController lists the owner by name, because the updater may list workloads but not get them.
func readController(ctx context.Context, kube kubernetes.Interface, targets *target.Resolver, change Change, ref metav1.OwnerReference) (*controller, error) {
	namespace, one := change.Target.Namespace, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", ref.Name).String()}
	group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group
	switch group + "/" + ref.Kind {
	case "apps/ReplicaSet":
		all, err := kube.AppsV1().ReplicaSets(namespace).List(ctx, one)
		return owning(all.Items, err, ref, func(o *appsv1.ReplicaSet) (*controller, error) {
			return unversioned(o, ref, o.Spec.Selector, &o.Spec.Template, o.Spec.Replicas)
		})
	case "apps/StatefulSet":
		all, err := kube.AppsV1().StatefulSets(namespace).List(ctx, one)
		return owning(all.Items, err, ref, func(o *appsv1.StatefulSet) (*controller, error) { return statefulSet(ref, o) })
	case "apps/DaemonSet":
		all, err := kube.AppsV1().DaemonSets(namespace).List(ctx, one)
		return owning(all.Items, err, ref, func(o *appsv1.DaemonSet) (*controller, error) {
			found, err := selecting(ref, o.Spec.Selector, &o.Status.DesiredNumberScheduled, &o.Spec.Template)
			if found != nil {
				found.daemon = true
			}
			return found, err
		})
	case "/ReplicationController":
		all, err := kube.CoreV1().ReplicationControllers(namespace).List(ctx, one)
		return owning(all.Items, err, ref, func(o *corev1.ReplicationController) (*controller, error) {
			return unversioned(o, ref, metav1.SetAsLabelSelector(o.Spec.Selector), o.Spec.Template, o.Spec.Replicas)
		})
	case "batch/Job":
		all, err := kube.BatchV1().Jobs(namespace).List(ctx, one)
		return owning(all.Items, err, ref, func(o *batchv1.Job) (*controller, error) {
			return selecting(ref, o.Spec.Selector, new(wantedByJob(o)), &o.Spec.Template)
		})
	}
	return customController(ctx, targets, change, ref)
}

// wantedByJob returns how many pods a Job runs at a time from now on.
func wantedByJob(o *batchv1.Job) int32 {
	switch {
	case o.Spec.Parallelism == nil:
		return disruption.Unknown
	case o.Spec.Completions == nil:
		return *o.Spec.Parallelism
	}
	return min(*o.Spec.Parallelism, max(*o.Spec.Completions-o.Status.Succeeded, 0))
}

// owning reads the object of a list that is the one of a reference and stays.
func owning[T any, O interface {
	*T
	metav1.Object
}](all []T, err error, ref metav1.OwnerReference, read func(O) (*controller, error)) (*controller, error) {
	if err != nil {
		return nil, err
	}
	for i := range all {
		o := O(&all[i])
		if o.GetName() == ref.Name && (ref.UID == "" || o.GetUID() == "" || o.GetUID() == ref.UID) && o.GetDeletionTimestamp() == nil {
			return read(o)
		}
	}
	return nil, errNoOwner
}

func selecting(ref metav1.OwnerReference, selector *metav1.LabelSelector, replicas *int32, template *corev1.PodTemplateSpec) (*controller, error) {
	selects, err := client.Selector(selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of %s %s: %w", ref.Kind, ref.Name, err)
	}
	found := &controller{ref: ref, selector: selects, wanted: 1, template: template}
	if replicas != nil {
		found.wanted = int(*replicas)
	}
	if template != nil && len(template.Spec.Containers) == 0 {
		found.template = nil
	}
	return found, nil
}

// unversioned reads a ReplicaSet or ReplicationController. The template of a ReplicaSet that a Deployment
// owns never changes.
func unversioned(o metav1.Object, ref metav1.OwnerReference, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, replicas *int32) (*controller, error) {
	found, err := selecting(ref, selector, replicas, template)
	if found != nil {
		found.unversioned = found.template != nil && metav1.GetControllerOfNoCopy(o) == nil
	}
	return found, err
}

func statefulSet(ref metav1.OwnerReference, o *appsv1.StatefulSet) (*controller, error) {
	found, err := selecting(ref, o.Spec.Selector, o.Spec.Replicas, &o.Spec.Template)
	if err != nil {
		return nil, err
	}
	for i := range o.Spec.VolumeClaimTemplates {
		found.claims = append(found.claims, o.Spec.VolumeClaimTemplates[i].Name)
	}
	found.revision = o.Status.UpdateRevision
	if rolling := o.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Partition != nil && *rolling.Partition > 0 {
		found.partition = int(*rolling.Partition)
		if o.Spec.Ordinals != nil {
			found.partition += int(o.Spec.Ordinals.Start)
		}
	}
	return found, nil
}

// customController takes the selector of the VPA's target and the replicas of the scale subresource.
// Where the target cannot be read, the labels of the pod select.
func customController(ctx context.Context, targets *target.Resolver, change Change, ref metav1.OwnerReference) (*controller, error) {
	found := &controller{ref: ref, wanted: disruption.Unknown, selector: labels.SelectorFromSet(change.Target.Labels)}
	if targets == nil || change.Autoscaler.Object == nil {
		return found, nil
	}
	namespace := change.Target.Namespace
	if selector, err := targets.Selector(ctx, namespace, change.Autoscaler.Object.Spec.TargetRef); err == nil {
		found.selector = selector
	}
	if key, known := target.Controller(namespace, []metav1.OwnerReference{ref}); known {
		if replicas, stated := targets.Replicas(ctx, key); stated {
			found.wanted = int(replicas)
		}
	}
	return found, nil
}
