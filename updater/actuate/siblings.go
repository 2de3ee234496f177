package actuate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// The pods of a large workload come in pages: pods of other owners may match its selector, and each may
// have more than a megabyte.
const (
	podsPage = 50
	mostPods = 500
)

// pods returns the pods of an owner, with no more than their state but for one of them, and true. If
// more than mostPods match the selector of the owner, it returns that pod alone, or none, and false.
func (c *Checker) pods(ctx context.Context, owner *controller, one *corev1.Pod) (pods []corev1.Pod, all bool, err error) {
	options := metav1.ListOptions{LabelSelector: owner.selector.String(), Limit: podsPage}
	for range mostPods / podsPage {
		page, err := c.Kube.CoreV1().Pods(one.Namespace).List(ctx, options)
		if err != nil {
			return nil, false, err
		}
		for i := range page.Items {
			pod := &page.Items[i]
			if !owner.owns(pod) {
				continue
			}
			if pod.UID != one.UID {
				pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID, DeletionTimestamp: pod.DeletionTimestamp},
					Status: corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions}}
			}
			pods = append(pods, *pod)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return pods, true, nil
		}
	}
	found, err := c.Kube.CoreV1().Pods(one.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", one.Name).String()})
	if err != nil {
		return nil, false, err
	}
	return slices.DeleteFunc(found.Items, func(pod corev1.Pod) bool { return pod.UID != one.UID || pod.DeletionTimestamp != nil }), false, nil
}

// owns reports whether a pod belongs to the controller. References of cached pods have no UID.
func (c *controller) owns(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && ref.Kind == c.ref.Kind && ref.Name == c.ref.Name && (c.ref.UID == "" || ref.UID == c.ref.UID)
}
