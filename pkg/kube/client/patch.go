package client

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
)

// PatchOperation is one step of a JSON patch. The value of a remove operation is null and ignored.
type PatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// EmptyObject is the value of steps that add an object. It must not be changed.
var EmptyObject = map[string]string{}

// PatchAdd sets the value at path.
func PatchAdd(path string, value any) PatchOperation {
	return PatchOperation{Op: "add", Path: path, Value: value}
}

// PatchRemove removes the value at path, which must exist.
func PatchRemove(path string) PatchOperation { return PatchOperation{Op: "remove", Path: path} }

// PatchTest makes the API server reject the whole patch unless path has the given value.
func PatchTest(path string, value any) PatchOperation {
	return PatchOperation{Op: "test", Path: path, Value: value}
}

// PatchTestName tests the name of container i of a pod.
func PatchTestName(i int, container *corev1.Container) PatchOperation {
	return PatchTest("/spec/containers/"+strconv.Itoa(i)+"/name", container.Name)
}

// AppendResources sets the requests and limits of container i, and creates missing parents.
func AppendResources(steps []PatchOperation, i int, container *corev1.Container, desired corev1.ResourceRequirements) []PatchOperation {
	path := "/spec/containers/" + strconv.Itoa(i) + "/resources"
	if !convert.HasResources(container) {
		steps = append(steps, PatchAdd(path, EmptyObject))
	}
	for _, list := range [...]struct {
		path        string
		has, wanted corev1.ResourceList
	}{{path + "/requests", container.Resources.Requests, desired.Requests}, {path + "/limits", container.Resources.Limits, desired.Limits}} {
		if len(list.wanted) > 0 && list.has == nil {
			steps = append(steps, PatchAdd(list.path, EmptyObject))
		}
		for k := range resources.Kind(resources.Kinds) {
			if q, ok := list.wanted[convert.ResourceName(k)]; ok {
				steps = append(steps, PatchAdd(list.path+"/"+k.String(), q.String()))
			}
		}
	}
	return steps
}

// PatchPath joins segments to a JSON pointer and escapes "~" and "/" in them.
func PatchPath(segments ...string) string {
	var path strings.Builder
	path.Grow(64) // long enough for most
	for _, s := range segments {
		path.WriteByte('/')
		path.WriteString(escapes.Replace(s))
	}
	return path.String()
}

var escapes = strings.NewReplacer("~", "~0", "/", "~1")
