package testkit

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	ktesting "k8s.io/client-go/testing"
)

// Writes returns the writes in the actions of fake API servers, sorted and without duplicates:
// verb, resource with subresource, and the fields of a patch. Annotations and labels are listed by
// key, a status as a whole. Test operations of a patch are ignored.
func Writes(actions ...ktesting.Action) []string {
	all := map[string]bool{}
	for _, a := range actions {
		switch a.GetVerb() {
		case "get", "list", "watch":
			continue
		}
		what := a.GetVerb() + " " + a.GetResource().Resource
		if sub := a.GetSubresource(); sub != "" {
			what += "/" + sub
		}
		if create, is := a.(ktesting.CreateActionImpl); is && len(create.CreateOptions.DryRun) > 0 {
			what += " (dry run)"
		}
		patch, ok := a.(ktesting.PatchAction)
		if !ok {
			all[what] = true
			continue
		}
		for _, field := range Patched(patch.GetPatch()) {
			all[what+" "+field] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Patched returns the fields that a JSON patch or a merge patch writes, in the format of Writes.
func Patched(patch []byte) (fields []string) {
	var steps []struct{ Op, Path string }
	if json.Unmarshal(patch, &steps) == nil {
		for _, s := range steps {
			if s.Op != "test" {
				fields = append(fields, field(strings.Split(strings.TrimPrefix(s.Path, "/"), "/")))
			}
		}
		return slices.DeleteFunc(fields, meansObject)
	}
	var merge map[string]any
	if err := json.Unmarshal(patch, &merge); err != nil {
		return []string{err.Error()}
	}
	var walk func(path []string, value any)
	walk = func(path []string, value any) {
		object, ok := value.(map[string]any)
		if !ok || len(path) == fieldDepth {
			fields = append(fields, field(path))
			return
		}
		for key, value := range object {
			walk(append(slices.Clone(path), key), value)
		}
	}
	walk(nil, merge)
	return slices.DeleteFunc(fields, meansObject)
}

func meansObject(field string) bool {
	return field == "metadata.uid" || field == "metadata.resourceVersion"
}

const fieldDepth = 3

func field(path []string) string {
	path = slices.DeleteFunc(slices.Clone(path), func(word string) bool { return strings.Trim(word, "0123456789") == "" })
	for i := range path {
		path[i] = strings.ReplaceAll(path[i], "~1", "/")
	}
	if len(path) > 0 && path[0] == "status" {
		path = path[:1]
	}
	return strings.Join(path[:min(len(path), fieldDepth)], ".")
}
