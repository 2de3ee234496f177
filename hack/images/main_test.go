package main

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBadFlagsSayWhatWouldBeRight(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	t.Chdir(root)
	require.ErrorContains(t, run(t.TempDir(), "v1", "amd64", io.Discard), `-platforms: "amd64" is no platform such as linux/amd64`)
	require.ErrorContains(t, run(t.TempDir(), "v 1", "linux/amd64", io.Discard), "-tag: ")
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	require.ErrorContains(t, run(t.TempDir(), "v1", "linux/amd64", io.Discard), "SOURCE_DATE_EPOCH: ")
}
