package patch

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathEscapesNames(t *testing.T) {
	require.Equal(t, "/metadata/annotations/vpaCpuStartupBoost~1app", Path("metadata", "annotations", "vpaCpuStartupBoost/app"))
	require.Equal(t, "/a/x~0~1y", Path("a", "x~/y"))
	require.Equal(t, "", Path())
}

func TestOperationsAreWrittenAsRFC6902Demands(t *testing.T) {
	text, err := json.Marshal([]Operation{Test("/a", "b"), Add("/c", struct{}{}), Add("/d", nil)})
	require.NoError(t, err)
	require.JSONEq(t, `[{"op":"test","path":"/a","value":"b"},{"op":"add","path":"/c","value":{}},{"op":"add","path":"/d","value":null}]`, string(text))
}

func FuzzAppend(f *testing.F) {
	f.Add("/spec/containers/0/resources", "100m")
	f.Add("/a~1b", "<\"\\\u2028\x7f\xff&>\n")
	f.Fuzz(func(t *testing.T, path, value string) {
		steps := []Operation{Test(path, value), Add(path, map[string]string{}), Add(value, nil), {Op: value, Path: path, Value: []string{value}}}
		want, err := json.Marshal(steps)
		require.NoError(t, err)
		got, err := Append([]byte("x"), steps)
		require.NoError(t, err)
		require.Equal(t, "x"+string(want), string(got))
	})
}

func TestAppendTellsWhatCannotBeWritten(t *testing.T) {
	_, err := Append(nil, []Operation{Add("/a", make(chan int))})
	require.ErrorContains(t, err, "unsupported type")
	text, err := Append(nil, nil)
	require.NoError(t, err)
	require.Equal(t, "[]", string(text))
}
