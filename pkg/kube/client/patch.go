package client

import (
	"encoding/json"
	"strings"
)

// PatchOperation is one step of a JSON patch.
type PatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// PatchAdd sets the value at path.
func PatchAdd(path string, value any) PatchOperation {
	return PatchOperation{Op: "add", Path: path, Value: value}
}

// PatchTest demands that the value at path is as given; otherwise the API server
// refuses the whole patch.
func PatchTest(path string, value any) PatchOperation {
	return PatchOperation{Op: "test", Path: path, Value: value}
}

// PatchPath joins segments to a JSON pointer and escapes "~" and "/" in them.
func PatchPath(segments ...string) string {
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

// AppendPatch writes steps behind text, with the bytes that encoding/json would write
// but without reflection for values that are texts. It fails
// when a value cannot be written.
func AppendPatch(text []byte, steps []PatchOperation) ([]byte, error) {
	text = append(text, '[')
	for i, step := range steps {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendText(append(text, `{"op":`...), step.Op)
		text = appendText(append(text, `,"path":`...), step.Path)
		text = append(text, `,"value":`...)
		switch value := step.Value.(type) {
		case string:
			text = appendText(text, value)
		default:
			written, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			text = append(text, written...)
		}
		text = append(text, '}')
	}
	return append(text, ']'), nil
}

func appendText(text []byte, value string) []byte {
	if !plain(value) {
		written, _ := json.Marshal(value) // never fails for a text
		return append(text, written...)
	}
	return append(append(append(text, '"'), value...), '"')
}

// plain tells whether encoding/json writes a text as it is.
func plain(value string) bool {
	for i := range len(value) {
		switch b := value[i]; {
		case b < ' ', b >= 0x7f, b == '"', b == '\\', b == '<', b == '>', b == '&':
			return false
		}
	}
	return true
}
