package server

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/fleet"
)

// DecodePod decodes the fields of a pod that affect its resources or quotas. Of the annotations it
// keeps those of fleet.IsAnnotation. The map is nil only if the pod has none, because a patch then
// has to add it.
func DecodePod(raw []byte) (*corev1.Pod, error) {
	d := newDecoder(raw)
	defer d.free()
	pod := &corev1.Pod{}
	for name := range d.members() {
		switch string(name) {
		case "metadata":
			pod.ObjectMeta = d.metadata()
		case "spec":
			pod.Spec = d.podSpec()
		}
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("not a pod: %w", err)
	}
	return pod, nil
}

// FindAnnotations returns the names that an object has as annotations, in the order of the object. It has no
// bounds, decodes nothing behind the annotations, and returns nothing for invalid JSON.
func FindAnnotations(raw []byte, names []string) (found []string) {
	d := newDecoder(raw)
	defer d.free()
	d.maxDepth, d.parts = unlimited, -unlimited
	for member := range d.members() {
		if string(member) != "metadata" {
			continue
		}
		for member := range d.members() {
			if string(member) != "annotations" {
				continue
			}
			for name := range d.members() {
				if i := slices.IndexFunc(names, func(n string) bool { return n == string(name) }); i >= 0 {
					found = append(found, names[i])
				}
			}
			return found
		}
	}
	return nil
}

func (d *decoder) metadata() (meta metav1.ObjectMeta) {
	for name := range d.members() {
		switch string(name) {
		case "name":
			meta.Name = d.text()
		case "generateName":
			meta.GenerateName = d.text()
		case "labels":
			meta.Labels = d.texts(func([]byte) bool { return true })
		case "annotations":
			meta.Annotations = d.texts(func(name []byte) bool { return fleet.IsAnnotation(string(name)) })
		case "ownerReferences":
			meta.OwnerReferences = nil
			for range d.elements() {
				meta.OwnerReferences = append(meta.OwnerReferences, d.ownerReference())
			}
		}
	}
	return meta
}

func (d *decoder) texts(wanted func(name []byte) bool) map[string]string {
	if d.null() {
		return nil
	}
	texts := map[string]string{}
	for name := range d.members() {
		if wanted(name) {
			texts[d.unescape(name)] = d.text()
		}
	}
	return texts
}

func (d *decoder) ownerReference() (owner metav1.OwnerReference) {
	for name := range d.members() {
		switch string(name) {
		case "apiVersion":
			owner.APIVersion = d.text()
		case "kind":
			owner.Kind = d.text()
		case "name":
			owner.Name = d.text()
		case "controller":
			owner.Controller = d.boolean()
		}
	}
	return owner
}

func (d *decoder) podSpec() (spec corev1.PodSpec) {
	for name := range d.members() {
		switch string(name) {
		case "containers":
			spec.Containers = d.containerList()
		case "initContainers":
			spec.InitContainers = d.containerList()
		case "resources":
			if spec.Resources = nil; !d.null() {
				spec.Resources = new(d.resources())
			}
		case "overhead":
			spec.Overhead = d.resourceList()
		case "activeDeadlineSeconds":
			d.short(&spec.ActiveDeadlineSeconds)
		case "priorityClassName":
			spec.PriorityClassName = d.text()
		}
	}
	return spec
}

func (d *decoder) containerList() (containers []corev1.Container) {
	for range d.elements() {
		if containers == nil {
			containers = make([]corev1.Container, 0, 2) // most pods have no more
		}
		if d.containers++; d.containers > MaxContainers {
			d.exceed("more than %d containers", MaxContainers)
			return nil
		}
		containers = append(containers, corev1.Container{})
		c := &containers[len(containers)-1]
		for name := range d.members() {
			switch string(name) {
			case "name":
				c.Name = d.text()
			case "resources":
				c.Resources = d.resources()
			case "restartPolicy":
				if policy := d.text(); policy != "" {
					c.RestartPolicy = new(corev1.ContainerRestartPolicy(policy))
				}
			}
		}
	}
	return containers
}

func (d *decoder) resources() (resources corev1.ResourceRequirements) {
	for name := range d.members() {
		switch string(name) {
		case "limits":
			resources.Limits = d.resourceList()
		case "requests":
			resources.Requests = d.resourceList()
		case "claims":
			resources.Claims = nil
			for range d.elements() {
				var claim corev1.ResourceClaim
				d.short(&claim)
				resources.Claims = append(resources.Claims, claim)
			}
		}
	}
	return resources
}

func (d *decoder) resourceList() corev1.ResourceList {
	if d.null() {
		return nil
	}
	list := corev1.ResourceList{}
	for name := range d.members() {
		switch string(name) { // without an allocation for the usual names
		case string(corev1.ResourceCPU):
			list[corev1.ResourceCPU] = d.quantity()
		case string(corev1.ResourceMemory):
			list[corev1.ResourceMemory] = d.quantity()
		default:
			list[corev1.ResourceName(d.unescape(name))] = d.quantity()
		}
	}
	return list
}

func (d *decoder) quantity() (q resource.Quantity) {
	start := d.InputOffset()
	raw := d.raw()
	if raw == nil || !d.checkQuantity(raw) {
		return q
	}
	if err := q.UnmarshalJSON(raw); err != nil {
		d.reject(start, "a quantity such as 250m or 1Gi")
	}
	return q
}
