package server

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/fleet"
)

// MostContainers is how many containers of a pod are read, those that run before
// the others included. A pod with more is ErrTooMuch.
const MostContainers = 300

// Pod reads the parts of a pod that decide what it gets: its names, labels and
// owners, those of its annotations that count for policies (the map is empty if it
// has only others), the names and resources of its containers, and what quotas look at. It fails when raw is no
// pod, and with ErrTooMuch when it has more parts than any pod.
func Pod(raw []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	r := Read(raw)
	for name := range r.Members() {
		switch string(name) {
		case "metadata":
			pod.ObjectMeta = r.meta()
		case "spec":
			pod.Spec = r.spec()
		}
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("not a pod: %w", err)
	}
	return pod, nil
}

// Annotated returns which of some names the annotations of an object have, in the order of the
// object. It reads no further than the first annotations, looks at all of these, however
// many there are, and finds none in what it cannot read.
func Annotated(raw []byte, names []string) (found []string) {
	r := Read(raw)
	r.most, r.parts = anyLevels, anyParts
	for member := range r.Members() {
		if string(member) != "metadata" {
			continue
		}
		for member := range r.Members() {
			if string(member) != "annotations" {
				continue
			}
			for name := range r.Members() {
				if i := slices.IndexFunc(names, func(n string) bool { return n == string(name) }); i >= 0 {
					found = append(found, names[i])
				}
			}
			return found
		}
	}
	return nil
}

func (r *Reader) meta() (meta metav1.ObjectMeta) {
	for name := range r.Members() {
		switch string(name) {
		case "name":
			meta.Name = r.Text()
		case "generateName":
			meta.GenerateName = r.Text()
		case "labels":
			meta.Labels = r.labels()
		case "annotations":
			meta.Annotations = r.annotations()
		case "ownerReferences":
			meta.OwnerReferences = nil
			for range r.Elements() {
				meta.OwnerReferences = append(meta.OwnerReferences, r.owner())
			}
		}
	}
	return meta
}

func (r *Reader) labels() map[string]string {
	if r.null() {
		return nil
	}
	labels := map[string]string{}
	for name := range r.Members() {
		labels[r.key(name)] = r.Text()
	}
	return labels
}

func (r *Reader) annotations() map[string]string {
	if r.null() {
		return nil
	}
	kept := map[string]string{}
	for name := range r.Members() {
		if fleet.Counts(string(name)) {
			kept[string(name)] = r.Text()
		}
	}
	return kept
}

func (r *Reader) owner() (owner metav1.OwnerReference) {
	for name := range r.Members() {
		switch string(name) {
		case "apiVersion":
			owner.APIVersion = r.Text()
		case "kind":
			owner.Kind = r.Text()
		case "name":
			owner.Name = r.Text()
		case "controller":
			owner.Controller = r.Truth()
		}
	}
	return owner
}

func (r *Reader) spec() (spec corev1.PodSpec) {
	for name := range r.Members() {
		switch string(name) {
		case "containers":
			spec.Containers = r.containers()
		case "initContainers":
			spec.InitContainers = r.containers()
		case "resources":
			if spec.Resources = nil; !r.null() {
				spec.Resources = new(r.resources())
			}
		case "overhead":
			spec.Overhead = r.list()
		case "activeDeadlineSeconds":
			r.Into(&spec.ActiveDeadlineSeconds)
		case "priorityClassName":
			spec.PriorityClassName = r.Text()
		}
	}
	return spec
}

// usualContainers is room for most pods.
const usualContainers = 2

func (r *Reader) containers() (containers []corev1.Container) {
	for range r.Elements() {
		if containers == nil {
			containers = make([]corev1.Container, 0, usualContainers)
		}
		if r.sized++; r.sized > MostContainers {
			r.tooMuch("more than %d containers", MostContainers)
			return nil
		}
		containers = append(containers, corev1.Container{})
		c := &containers[len(containers)-1]
		for name := range r.Members() {
			switch string(name) {
			case "name":
				c.Name = r.Text()
			case "resources":
				c.Resources = r.resources()
			case "restartPolicy":
				if policy := r.Text(); policy != "" {
					c.RestartPolicy = new(corev1.ContainerRestartPolicy(policy))
				}
			}
		}
	}
	return containers
}

func (r *Reader) resources() (resources corev1.ResourceRequirements) {
	for name := range r.Members() {
		switch string(name) {
		case "limits":
			resources.Limits = r.list()
		case "requests":
			resources.Requests = r.list()
		case "claims":
			resources.Claims = nil
			for range r.Elements() {
				var claim corev1.ResourceClaim
				r.Into(&claim)
				resources.Claims = append(resources.Claims, claim)
			}
		}
	}
	return resources
}

func (r *Reader) list() corev1.ResourceList {
	if r.null() {
		return nil
	}
	list := corev1.ResourceList{}
	for name := range r.Members() {
		list[r.resourceName(name)] = r.quantity()
	}
	return list
}

// resourceName makes no new text for what nearly every container has.
func (r *Reader) resourceName(name []byte) corev1.ResourceName {
	switch string(name) {
	case string(corev1.ResourceCPU):
		return corev1.ResourceCPU
	case string(corev1.ResourceMemory):
		return corev1.ResourceMemory
	}
	return corev1.ResourceName(r.key(name))
}

func (r *Reader) quantity() (q resource.Quantity) {
	raw := r.Raw()
	if raw == nil || !r.sound(raw) {
		return q
	}
	if err := q.UnmarshalJSON(raw); err != nil {
		r.reject(raw, "a quantity such as 250m or 1Gi")
	}
	return q
}
