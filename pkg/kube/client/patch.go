package client

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
)

// PatchOperation is one step of a JSON patch. One that removes has a value, too: null, which means nothing.
type PatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// EmptyObject is the value of steps that add an object; nobody writes to it.
var EmptyObject = map[string]string{}

// PatchAdd sets the value at path.
func PatchAdd(path string, value any) PatchOperation {
	return PatchOperation{Op: "add", Path: path, Value: value}
}

// PatchRemove removes what is at path, which must be there.
func PatchRemove(path string) PatchOperation { return PatchOperation{Op: "remove", Path: path} }

// PatchTest demands that the value at path is as given; otherwise the API server refuses the whole patch.
func PatchTest(path string, value any) PatchOperation {
	return PatchOperation{Op: "test", Path: path, Value: value}
}

// PatchName demands the name of the container at position i of a pod.
func PatchName(i int, container *corev1.Container) PatchOperation {
	return PatchTest("/spec/containers/"+strconv.Itoa(i)+"/name", container.Name)
}

// AppendSizes appends the steps that give the container at position i of a pod its
// sizes, after the objects that it has not and that hold them.
func AppendSizes(steps []PatchOperation, i int, container *corev1.Container, sizes corev1.ResourceRequirements) []PatchOperation {
	path := "/spec/containers/" + strconv.Itoa(i) + "/resources"
	if !convert.HasResources(container) {
		steps = append(steps, PatchAdd(path, EmptyObject))
	}
	for _, list := range [...]struct {
		path        string
		has, wanted corev1.ResourceList
	}{{path + "/requests", container.Resources.Requests, sizes.Requests}, {path + "/limits", container.Resources.Limits, sizes.Limits}} {
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
	path.Grow(64) // for most
	for _, s := range segments {
		path.WriteByte('/')
		path.WriteString(escapes.Replace(s))
	}
	return path.String()
}

var escapes = strings.NewReplacer("~", "~0", "/", "~1")
