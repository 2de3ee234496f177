package client

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPatchPath_EscapesNames(t *testing.T) {
	require.Equal(t, "/metadata/annotations/vpaCpuStartupBoost~1app", PatchPath("metadata", "annotations", "vpaCpuStartupBoost/app"))
	require.Equal(t, "/a/x~0~1y", PatchPath("a", "x~/y"))
	require.Equal(t, "", PatchPath())
}

func TestPatchOperation_EncodesRFC6902(t *testing.T) {
	text, err := json.Marshal([]PatchOperation{PatchTest("/a", "b"), PatchAdd("/c", struct{}{}), PatchAdd("/d", nil)})
	require.NoError(t, err)
	require.JSONEq(t, `[{"op":"test","path":"/a","value":"b"},{"op":"add","path":"/c","value":{}},{"op":"add","path":"/d","value":null}]`, string(text))
}
