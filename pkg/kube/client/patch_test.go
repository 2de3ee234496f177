package client

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathEscapesNames(t *testing.T) {
	require.Equal(t, "/metadata/annotations/vpaCpuStartupBoost~1app", PatchPath("metadata", "annotations", "vpaCpuStartupBoost/app"))
	require.Equal(t, "/a/x~0~1y", PatchPath("a", "x~/y"))
	require.Equal(t, "", PatchPath())
}

func TestOperationsAreWrittenAsRFC6902Demands(t *testing.T) {
	text, err := json.Marshal([]PatchOperation{PatchTest("/a", "b"), PatchAdd("/c", struct{}{}), PatchAdd("/d", nil)})
	require.NoError(t, err)
	require.JSONEq(t, `[{"op":"test","path":"/a","value":"b"},{"op":"add","path":"/c","value":{}},{"op":"add","path":"/d","value":null}]`, string(text))
}

func FuzzAppend(f *testing.F) {
	f.Add("/spec/containers/0/resources", "100m")
	f.Add("/a~1b", "<\"\\\u2028\x7f\xff&>\n")
	f.Fuzz(func(t *testing.T, path, value string) {
		steps := []PatchOperation{PatchTest(path, value), PatchAdd(path, map[string]string{}), PatchAdd(value, nil), {Op: value, Path: path, Value: []string{value}}}
		want, err := json.Marshal(steps)
		require.NoError(t, err)
		got, err := AppendPatch([]byte("x"), steps)
		require.NoError(t, err)
		require.Equal(t, "x"+string(want), string(got))
	})
}

func TestAppendTellsWhatCannotBeWritten(t *testing.T) {
	_, err := AppendPatch(nil, []PatchOperation{PatchAdd("/a", make(chan int))})
	require.ErrorContains(t, err, "unsupported type")
	text, err := AppendPatch(nil, nil)
	require.NoError(t, err)
	require.Equal(t, "[]", string(text))
}
