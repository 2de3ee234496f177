package actuate

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// usesOlderTemplate reports whether the controller creates the replacement of a pod from an older template
// than the one in its spec.
func (c *controller) usesOlderTemplate(pod *corev1.Pod) bool {
	revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if c.partition == 0 || revision == "" || revision == c.revision {
		return false
	}
	ordinal, err := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:])
	return err == nil && ordinal < c.partition
}

// changedPart returns a part of the template of an unversioned controller that has changed since a pod was
// created, or an empty string. The replacement has passed admission, so a part that admission adds to every
// pod is not a change. Nil: no dry run has returned it.
func (c *controller) changedPart(evicted, replacement *corev1.Pod) string {
	if !c.unversioned {
		return ""
	}
	if replacement == nil {
		replacement = templated(evicted, c.template)
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

// changedContainer returns the first container of a template that differs between a pod and its replacement
// in a field other than resources, or the first container that only the pod has. Containers that only
// admission adds may differ.
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

// templated returns a pod with the fields that a template sets now. It stands for a replacement that no dry
// run has returned, so fields that admission sets stay as they are.
func templated(pod *corev1.Pod, template *corev1.PodTemplateSpec) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.InitContainers = templatedContainers(pod.Spec.InitContainers, template.Spec.InitContainers)
	pod.Spec.Containers = templatedContainers(pod.Spec.Containers, template.Spec.Containers)
	pod.Spec.ServiceAccountName = cmp.Or(template.Spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	for _, v := range template.Spec.Volumes {
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(other corev1.Volume) bool { return other.Name == v.Name })
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	}
	return pod
}

func templatedContainers(pod, template []corev1.Container) []corev1.Container {
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

// withoutResources returns a container without the parts that a resize changes or that the API server
// adds to each pod.
func withoutResources(c corev1.Container) corev1.Container {
	c.Resources, c.ResizePolicy = corev1.ResourceRequirements{}, nil
	c.VolumeMounts = slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return isTokenVolume(m.Name) })
	return c
}

// isTokenVolume reports whether a volume holds the service account token. Its name is random.
func isTokenVolume(volume string) bool { return strings.HasPrefix(volume, "kube-api-access-") }
