package patch

import "strings"

// Operation is one step of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Add sets the value at path.
func Add(path string, value any) Operation { return Operation{Op: "add", Path: path, Value: value} }

// Test demands that the value at path is as given; otherwise the API server
// refuses the whole patch.
func Test(path string, value any) Operation { return Operation{Op: "test", Path: path, Value: value} }

// Path joins segments to a JSON pointer and escapes "~" and "/" in them.
func Path(segments ...string) string {
	length := 0
	for _, s := range segments {
		length += 1 + len(s) + strings.Count(s, "~") + strings.Count(s, "/")
	}
	var path strings.Builder
	path.Grow(length)
	for _, s := range segments {
		path.WriteByte('/')
		if strings.ContainsAny(s, "~/") {
			s = strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
		}
		path.WriteString(s)
	}
	return path.String()
}
