package actuate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/snapshot"
)

type controller struct {
	ref      metav1.OwnerReference
	selector labels.Selector
	replicas int // disruption.Unknown: not stated

	template    *corev1.PodTemplateSpec // nil: not readable, as for custom workloads
	claims      []string                // volumes that come from claim templates
	isDaemonSet bool                    // node affinity binds its pods to nodes
	// Of a StatefulSet: pods with lower ordinals than the partition and without the update revision
	// get an older template.
	partition int
	revision  string

	unversioned bool // the template can change, pods have no revision label
}

var errNoOwner = errors.New("the owner does not exist or is being deleted")

// readController lists the owner by name, because the updater may list workloads but not get them.
func readController(ctx context.Context, kube kubernetes.Interface, targets *target.Resolver, change Change, ref metav1.OwnerReference) (*controller, error) {
	namespace, one := change.Object.Namespace, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", ref.Name).String()}
	group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group
	switch group + "/" + ref.Kind {
	case "apps/ReplicaSet":
		all, err := kube.AppsV1().ReplicaSets(namespace).List(ctx, one)
		return findOwner(all.Items, err, ref, func(o *appsv1.ReplicaSet) (*controller, error) {
			return unversioned(o, ref, o.Spec.Selector, &o.Spec.Template, o.Spec.Replicas)
		})
	case "apps/StatefulSet":
		all, err := kube.AppsV1().StatefulSets(namespace).List(ctx, one)
		return findOwner(all.Items, err, ref, func(o *appsv1.StatefulSet) (*controller, error) { return statefulSet(ref, o) })
	case "apps/DaemonSet":
		all, err := kube.AppsV1().DaemonSets(namespace).List(ctx, one)
		return findOwner(all.Items, err, ref, func(o *appsv1.DaemonSet) (*controller, error) {
			found, err := newController(ref, o.Spec.Selector, &o.Status.DesiredNumberScheduled, &o.Spec.Template)
			if found != nil {
				found.isDaemonSet = true
			}
			return found, err
		})
	case "/ReplicationController":
		all, err := kube.CoreV1().ReplicationControllers(namespace).List(ctx, one)
		return findOwner(all.Items, err, ref, func(o *corev1.ReplicationController) (*controller, error) {
			return unversioned(o, ref, metav1.SetAsLabelSelector(o.Spec.Selector), o.Spec.Template, o.Spec.Replicas)
		})
	case "batch/Job":
		all, err := kube.BatchV1().Jobs(namespace).List(ctx, one)
		return findOwner(all.Items, err, ref, func(o *batchv1.Job) (*controller, error) {
			return newController(ref, o.Spec.Selector, new(jobReplicas(o)), &o.Spec.Template)
		})
	}
	return customController(ctx, targets, change, ref)
}

func jobReplicas(o *batchv1.Job) int32 {
	switch {
	case o.Spec.Parallelism == nil:
		return disruption.Unknown
	case o.Spec.Completions == nil:
		return *o.Spec.Parallelism
	}
	return min(*o.Spec.Parallelism, max(*o.Spec.Completions-o.Status.Succeeded, 0))
}

func findOwner[T any, O interface {
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

func newController(ref metav1.OwnerReference, selector *metav1.LabelSelector, replicas *int32, template *corev1.PodTemplateSpec) (*controller, error) {
	selects, err := client.Selector(selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of %s %s: %w", ref.Kind, ref.Name, err)
	}
	found := &controller{ref: ref, selector: selects, replicas: 1, template: template}
	if replicas != nil {
		found.replicas = int(*replicas)
	}
	if template != nil && len(template.Spec.Containers) == 0 {
		found.template = nil
	}
	return found, nil
}

// unversioned reads a controller. The template of a Deployment's ReplicaSet never changes.
func unversioned(o metav1.Object, ref metav1.OwnerReference, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, replicas *int32) (*controller, error) {
	found, err := newController(ref, selector, replicas, template)
	if found != nil {
		found.unversioned = found.template != nil && metav1.GetControllerOfNoCopy(o) == nil
	}
	return found, err
}

func statefulSet(ref metav1.OwnerReference, o *appsv1.StatefulSet) (*controller, error) {
	found, err := newController(ref, o.Spec.Selector, o.Spec.Replicas, &o.Spec.Template)
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

// customController selects by the labels of the pod if the target of the VPA cannot be read.
func customController(ctx context.Context, targets *target.Resolver, change Change, ref metav1.OwnerReference) (*controller, error) {
	found := &controller{ref: ref, replicas: disruption.Unknown, selector: labels.SelectorFromSet(change.Object.Labels)}
	if targets == nil || change.Autoscaler.Object == nil {
		return found, nil
	}
	namespace := change.Object.Namespace
	if selector, err := targets.Selector(ctx, namespace, change.Autoscaler.Object.Spec.TargetRef); err == nil {
		found.selector = selector
	}
	if key, known := target.Controller(namespace, []metav1.OwnerReference{ref}); known {
		if replicas, stated := targets.Replicas(ctx, key); stated {
			found.replicas = int(replicas)
		}
	}
	return found, nil
}

func (c *controller) usesOlderTemplate(pod *corev1.Pod) bool {
	revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if c.partition == 0 || revision == "" || revision == c.revision {
		return false
	}
	ordinal, err := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:])
	return err == nil && ordinal < c.partition
}

// changedPart returns a changed part of an unversioned template, or "". Parts that admission also
// sets on the replacement are not changes. replacement may be nil.
func (c *controller) changedPart(evicted, replacement *corev1.Pod) string {
	if !c.unversioned {
		return ""
	}
	if replacement == nil {
		replacement = withTemplate(evicted, c.template)
	}
	for _, part := range []struct {
		name               string
		current, templated map[string]string
	}{
		{name: "label", current: evicted.Labels, templated: c.template.Labels},
		{name: "annotation", current: evicted.Annotations, templated: c.template.Annotations},
	} {
		for _, key := range slices.Sorted(maps.Keys(part.templated)) {
			if part.current[key] != part.templated[key] && !writtenByUs(key) {
				return part.name + " " + key
			}
		}
	}
	current, next, spec := &evicted.Spec, &replacement.Spec, &c.template.Spec
	if current.ServiceAccountName != next.ServiceAccountName {
		return "serviceAccountName"
	}
	if name := changedContainer(spec.InitContainers, current.InitContainers, next.InitContainers); name != "" {
		return name
	}
	if name := changedContainer(spec.Containers, current.Containers, next.Containers); name != "" {
		return name
	}
	for _, v := range spec.Volumes {
		sameName := func(other corev1.Volume) bool { return other.Name == v.Name }
		i, j := slices.IndexFunc(current.Volumes, sameName), slices.IndexFunc(next.Volumes, sameName)
		if i < 0 || j >= 0 && !equality.Semantic.DeepEqual(current.Volumes[i], next.Volumes[j]) {
			return "volume " + v.Name
		}
	}
	return ""
}

// changedContainer returns the first container that differs in fields other than resources, or that
// only the pod has. Containers that only admission adds may differ.
func changedContainer(template, current, next []corev1.Container) string {
	find := func(all []corev1.Container, name string) int {
		return slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	}
	for i := range template {
		name := template[i].Name
		from, to := find(current, name), find(next, name)
		switch {
		case from < 0:
			return "container " + name
		case to < 0: // removed by admission
		case current[from].Image != next[to].Image:
			return "image of container " + name
		case !equality.Semantic.DeepEqual(withoutResources(current[from]), withoutResources(next[to])):
			return "container " + name
		}
	}
	for i := range current {
		if find(next, current[i].Name) < 0 {
			return "container " + current[i].Name
		}
	}
	return ""
}

// withTemplate returns a copy of the pod with the fields of the template. It approximates the
// replacement without a dry run, so it keeps the fields that admission set.
func withTemplate(pod *corev1.Pod, template *corev1.PodTemplateSpec) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.InitContainers = withTemplateContainers(pod.Spec.InitContainers, template.Spec.InitContainers)
	pod.Spec.Containers = withTemplateContainers(pod.Spec.Containers, template.Spec.Containers)
	pod.Spec.ServiceAccountName = cmp.Or(template.Spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	for _, v := range template.Spec.Volumes {
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(other corev1.Volume) bool { return other.Name == v.Name })
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	}
	return pod
}

func withTemplateContainers(pod, template []corev1.Container) []corev1.Container {
	for i := range template {
		t := &template[i]
		at := slices.IndexFunc(pod, func(c corev1.Container) bool { return c.Name == t.Name })
		if at < 0 {
			pod = append(pod, *t)
			continue
		}
		c := &pod[at]
		if path.Base(c.Image) != path.Base(t.Image) { // admission may name another registry
			c.Image = t.Image
		}
		if len(t.Command)+len(t.Args) > 0 {
			c.Command, c.Args = t.Command, t.Args
		}
		for _, e := range t.Env {
			if old := slices.IndexFunc(c.Env, func(other corev1.EnvVar) bool { return other.Name == e.Name }); old >= 0 {
				c.Env[old] = e
			} else {
				c.Env = append(c.Env, e)
			}
		}
	}
	return pod
}

// withoutResources removes fields that a resize changes or the API server adds to each pod.
func withoutResources(c corev1.Container) corev1.Container {
	c.Resources, c.ResizePolicy = corev1.ResourceRequirements{}, nil
	c.VolumeMounts = slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool {
		return strings.HasPrefix(m.Name, "kube-api-access-") // the service account token, with a random name
	})
	return c
}

var perPodLabels = []string{
	appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel, appsv1.ControllerRevisionHashLabelKey, "pod-template-generation",
	batchv1.JobCompletionIndexAnnotation,
}

// replacement returns the pod that a controller creates for an evicted one. The name is generated,
// because a StatefulSet reuses the name of the evicted pod, which still exists. The owner reference
// does not block the owner's deletion, because with OwnerReferencesPermissionEnforcement that needs
// the permission to update the owner's finalizers.
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
	maps.DeleteFunc(pod.Annotations, func(name, _ string) bool { return writtenByUs(name) })
	return pod
}

// maxGenerateName is the longest prefix that passes the validation of the API server.
const maxGenerateName = 253 - 5

func generateName(owner string) string {
	if name := owner + "-"; len(name) <= maxGenerateName {
		return name
	}
	return owner[:maxGenerateName]
}

func writtenByUs(annotation string) bool {
	switch annotation {
	case convert.UpdatesAnnotation, convert.ObservedAnnotation, convert.ResizedAnnotation, convert.RestartAnnotation, convert.BackoffAnnotation:
		return true
	}
	return strings.HasPrefix(annotation, convert.BoostAnnotationPrefix) || slices.Contains(convert.RunningPodAnnotations, annotation)
}

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
	if c.isDaemonSet {
		live := evicted.DeepCopy()
		pod.Spec.Affinity, pod.Spec.Tolerations = live.Spec.Affinity, live.Spec.Tolerations
	}
	return pod
}

// recreated omits fields that the API server, the scheduler and the kubelet set.
func recreated(evicted *corev1.Pod) *corev1.Pod {
	live := evicted.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: live.Labels, Annotations: live.Annotations}, Spec: live.Spec}
	pod.Spec.NodeName, pod.Spec.EphemeralContainers, pod.Spec.SchedulingGates = "", nil, nil
	// Admission derives these again and refuses other values.
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = nil, nil
	if pod.Spec.RuntimeClassName != nil {
		pod.Spec.Overhead = nil
	}
	return pod
}

func withTargets(pod *corev1.Pod, vpa snapshot.VPA) *corev1.Pod {
	if vpa.Object == nil || convert.HasPodLevelResources(pod) {
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
	maps.Copy(list, changes)
	return list
}
