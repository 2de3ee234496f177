package actuate

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// older reports whether the controller creates the replacement of a pod from an older template than
// the one in its spec.
func (c *controller) older(pod *corev1.Pod) bool {
	revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if c.partition == 0 || revision == "" || revision == c.revision {
		return false
	}
	ordinal, err := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:])
	return err == nil && ordinal < c.partition
}

// changedSince returns which part of the template of an unversioned controller has changed since a pod
// was created, empty if none has. The replacement of the pod has passed admission, so that parts that
// admission adds to every pod are no changes.
func (c *controller) changedSince(evicted, replacement *corev1.Pod) string {
	if !c.unversioned {
		return ""
	}
	for _, part := range []struct {
		name      string
		has, gets map[string]string
	}{
		{name: "label", has: evicted.Labels, gets: c.template.Labels},
		{name: "annotation", has: evicted.Annotations, gets: c.template.Annotations},
	} {
		for _, key := range slices.Sorted(maps.Keys(part.gets)) {
			if part.has[key] != part.gets[key] && !writtenByUs(key) {
				return part.name + " " + key
			}
		}
	}
	is, next, spec := &evicted.Spec, &replacement.Spec, &c.template.Spec
	if is.ServiceAccountName != next.ServiceAccountName {
		return "serviceAccountName"
	}
	if name := changedContainer(spec.InitContainers, is.InitContainers, next.InitContainers); name != "" {
		return name
	}
	if name := changedContainer(spec.Containers, is.Containers, next.Containers); name != "" {
		return name
	}
	for _, v := range spec.Volumes {
		named := func(other corev1.Volume) bool { return other.Name == v.Name }
		i, j := slices.IndexFunc(is.Volumes, named), slices.IndexFunc(next.Volumes, named)
		if i < 0 || j >= 0 && !equality.Semantic.DeepEqual(is.Volumes[i], next.Volumes[j]) {
			return "volume " + v.Name
		}
	}
	return ""
}

// changedContainer names the first container of a template that a pod and its replacement have with
// different fields, resources aside, or the first one that only the pod has. Containers that admission
// adds may change with it.
func changedContainer(template, has, gets []corev1.Container) string {
	find := func(all []corev1.Container, name string) int {
		return slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	}
	for i := range template {
		name := template[i].Name
		from, to := find(has, name), find(gets, name)
		switch {
		case from < 0:
			return "container " + name
		case to < 0: // admission has taken it out
		case has[from].Image != gets[to].Image:
			return "image of container " + name
		case !equality.Semantic.DeepEqual(withoutResources(has[from]), withoutResources(gets[to])):
			return "container " + name
		}
	}
	for i := range has {
		if find(gets, has[i].Name) < 0 {
			return "container " + has[i].Name
		}
	}
	return ""
}

// withoutResources returns a container without the parts that a resize changes or that the API server
// adds to each pod.
func withoutResources(c corev1.Container) corev1.Container {
	c.Resources, c.ResizePolicy = corev1.ResourceRequirements{}, nil
	c.VolumeMounts = slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return isToken(m.Name) })
	return c
}

// isToken reports whether a volume is the one of the service account token, whose name is random.
func isToken(volume string) bool { return strings.HasPrefix(volume, "kube-api-access-") }
