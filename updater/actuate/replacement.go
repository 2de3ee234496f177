package actuate

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/updater/snapshot"
)

// perPodLabels are the labels that controllers add to the ones of their template.
var perPodLabels = []string{
	appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel, appsv1.ControllerRevisionHashLabelKey, "pod-template-generation",
	batchv1.JobCompletionIndexAnnotation,
}

// replacement returns the pod that a controller creates in place of an evicted one. It is built from
// the pod template, or from the evicted pod where the template is not readable or another revision.
//
// The name is always generated: a StatefulSet reuses the name of the evicted pod, which still exists.
// The owner reference does not block the deletion of the owner, because the updater lacks the
// permission on finalizers that some clusters require for that.
func replacement(c *controller, evicted *corev1.Pod) *corev1.Pod {
	var pod *corev1.Pod
	if c.template == nil || c.usesOlderTemplate(evicted) {
		pod = recreated(evicted)
	} else {
		pod = fromTemplate(c, evicted)
	}
	pod.Namespace, pod.GenerateName = evicted.Namespace, generateName(c.ref.Name)
	ref := c.ref
	if live := metav1.GetControllerOf(evicted); live != nil { // the reference of a cached pod is incomplete
		ref = *live
	}
	ref.BlockOwnerDeletion = nil
	pod.OwnerReferences = []metav1.OwnerReference{ref}
	for name := range pod.Annotations {
		if writtenByUs(name) {
			delete(pod.Annotations, name)
		}
	}
	return pod
}

// maxGenerateName is the longest prefix that the API server does not cut.
const maxGenerateName = 253 - 5

func generateName(owner string) string {
	if name := owner + "-"; len(name) <= maxGenerateName {
		return name
	}
	return owner[:maxGenerateName]
}

// writtenByUs reports whether the webhook or the updater writes an annotation of a pod.
func writtenByUs(annotation string) bool {
	switch annotation {
	case convert.UpdatesAnnotation, convert.ObservedAnnotation, convert.ResizedAnnotation, convert.RestartAnnotation, convert.PauseAnnotation:
		return true
	}
	return strings.HasPrefix(annotation, convert.BoostAnnotationPrefix) || slices.Contains(convert.ForeignAnnotations, annotation)
}

// fromTemplate returns a pod of a template, with the parts that its controller adds for each pod.
func fromTemplate(c *controller, evicted *corev1.Pod) *corev1.Pod {
	template := c.template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers},
		Spec:       template.Spec,
	}
	for _, name := range perPodLabels {
		if value, there := evicted.Labels[name]; there {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, name, value)
		}
	}
	if index, there := evicted.Annotations[batchv1.JobCompletionIndexAnnotation]; there {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, index)
	}
	for _, name := range c.claims {
		volume := slices.IndexFunc(evicted.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		if volume < 0 {
			continue
		}
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		pod.Spec.Volumes = append(pod.Spec.Volumes, *evicted.Spec.Volumes[volume].DeepCopy())
	}
	if evicted.Spec.Hostname != "" {
		pod.Spec.Hostname, pod.Spec.Subdomain = evicted.Spec.Hostname, evicted.Spec.Subdomain
	}
	if c.daemon {
		live := evicted.DeepCopy()
		pod.Spec.Affinity, pod.Spec.Tolerations = live.Spec.Affinity, live.Spec.Tolerations
	}
	return pod
}

// recreated returns a pod as it was created, without the fields that the API server, the scheduler
// and the kubelet have set since and that a new pod must not have.
func recreated(evicted *corev1.Pod) *corev1.Pod {
	live := evicted.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: live.Labels, Annotations: live.Annotations}, Spec: live.Spec}
	pod.Spec.NodeName, pod.Spec.EphemeralContainers, pod.Spec.SchedulingGates = "", nil, nil
	// Admission derives these again and refuses values that it does not derive.
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = nil, nil
	if pod.Spec.RuntimeClassName != nil {
		pod.Spec.Overhead = nil
	}
	return pod
}

// withSizes returns a pod with the resources that the webhook would set.
func withSizes(pod *corev1.Pod, vpa snapshot.VPA) *corev1.Pod {
	if vpa.Object == nil || convert.SizedAsWhole(pod) {
		return pod
	}
	pod = pod.DeepCopy()
	core, printer := vpa.Pod(pod), convert.NewPrinter(vpa.Object, *vpa.Ranges)
	for _, f := range core.Targets() {
		at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == f.Name })
		resources := &pod.Spec.Containers[at].Resources
		sizes := printer.Sizes(f, *resources)
		resources.Requests, resources.Limits = merged(resources.Requests, sizes.Requests), merged(resources.Limits, sizes.Limits)
	}
	return pod
}

func merged(list, changes corev1.ResourceList) corev1.ResourceList {
	if list == nil && len(changes) > 0 {
		list = corev1.ResourceList{}
	}
	for name, quantity := range changes {
		list[name] = quantity
	}
	return list
}
