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
	with := func(tag, platforms, registry string) error {
		return run(t.TempDir(), tag, platforms, registry, t.TempDir(), io.Discard)
	}
	require.ErrorContains(t, with("v1", "amd64", ""), `-platforms: "amd64" is no platform such as linux/amd64`)
	require.ErrorContains(t, with("v 1", "linux/amd64", ""), "-tag: ")
	require.ErrorContains(t, with("v1", "linux/amd64", "team"), "-push: ")
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	require.ErrorContains(t, with("v1", "linux/amd64", ""), "SOURCE_DATE_EPOCH: ")
}
