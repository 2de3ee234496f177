package actuate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
)

var errNoChange = errors.New("the change has no effect on any container")

// ResizePatch returns the JSON patch for the resize subresource. It tests the UID, the names of
// containers that it addresses by position, and the resources that it replaces, so that a plan from
// an old cache does not undo a newer resize. A change without effect is an error.
func ResizePatch(c Change) ([]byte, error) {
	steps := []client.PatchOperation{client.PatchTest("/metadata/uid", string(c.Object.UID))}
	first := len(steps)
	for i, sizes := range c.newResources() {
		container := &c.Object.Spec.Containers[i]
		if len(sizes.Requests)+len(sizes.Limits) > 0 {
			steps = append(append(steps, client.PatchTestName(i, container)), testAmounts(i, container, sizes)...)
			steps = client.AppendResources(steps, i, container, sizes)
		}
	}
	if len(steps) == first {
		return nil, errNoChange
	}
	return json.Marshal(steps)
}

// newResources returns the resources to write by container position, in the number format of the
// recommendation or of the deciding limits. A request is at most an unchanged limit.
func (c *Change) newResources() []corev1.ResourceRequirements {
	printer, gets := convert.NewPrinter(c.Autoscaler.Object, *c.Autoscaler.Ranges), c.targets()
	all := make([]corev1.ResourceRequirements, len(c.Object.Spec.Containers))
	for i := range all {
		container := &c.Object.Spec.Containers[i]
		if at := slices.IndexFunc(gets, func(f policy.ContainerTarget) bool { return f.Name == container.Name }); at >= 0 {
			all[i] = printer.Sizes(gets[at], convert.Current(c.Object, *container))
		}
	}
	return all
}

func (c *Change) appliedTo(pod *corev1.Pod) bool {
	has := func(list, written corev1.ResourceList) bool {
		for name, amount := range written {
			if q, found := list[name]; !found || q.Cmp(amount) != 0 {
				return false
			}
		}
		return true
	}
	for i, sizes := range c.newResources() {
		if is := pod.Spec.Containers[i].Resources; !has(is.Requests, sizes.Requests) || !has(is.Limits, sizes.Limits) {
			return false
		}
	}
	return true
}

// testAmounts tests the old value of every quantity in sizes. Old values may be missing.
func testAmounts(i int, container *corev1.Container, sizes corev1.ResourceRequirements) (steps []client.PatchOperation) {
	for _, list := range []struct {
		path        string
		has, wanted corev1.ResourceList
	}{{"requests", container.Resources.Requests, sizes.Requests}, {"limits", container.Resources.Limits, sizes.Limits}} {
		path := fmt.Sprintf("/spec/containers/%d/resources/%s", i, list.path)
		if list.has == nil && len(list.wanted) > 0 {
			steps = append(steps, client.PatchTest(path, nil))
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if _, written := list.wanted[convert.ResourceName(k)]; !written {
				continue
			}
			var has any
			if q, there := list.has[convert.ResourceName(k)]; there {
				has = q.String()
			}
			steps = append(steps, client.PatchTest(path+"/"+k.String(), has))
		}
	}
	return steps
}

// MarkPatch returns the merge patch that marks a pod as resized, and as restarted if restart is
// set. It removes the given boosts and a cached backoff. The API server refuses it for another pod
// of that name, because a UID cannot change.
func MarkPatch(pod *corev1.Pod, restart disruption.Restart, removedBoosts ...string) ([]byte, error) {
	annotations := map[string]any{convert.ResizedAnnotation: "true"}
	if !restart.At.IsZero() {
		annotations[convert.RestartAnnotation] = convert.FormatRestart(restart)
	}
	for _, name := range removedBoosts {
		annotations[convert.BoostAnnotationPrefix+name] = nil
	}
	if _, left := pod.Annotations[convert.BackoffAnnotation]; left {
		annotations[convert.BackoffAnnotation] = nil
	}
	return annotationPatch(pod, annotations)
}

func annotationPatch(pod *corev1.Pod, annotations map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
}
