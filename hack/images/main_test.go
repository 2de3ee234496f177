package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun_RejectsInvalidFlags(t *testing.T) {
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

func TestImagesAreFree_RejectsKustomizationWithImages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kustomization.yaml")
	require.NoError(t, os.WriteFile(file, []byte("resources: [overlays/full]\n# images: are named elsewhere\n"), 0o644))
	require.NoError(t, checkImageOverrides(file))
	require.NoError(t, os.WriteFile(file, []byte("resources: [overlays/full]\nimages:\n- {name: loadline-updater, newTag: v1}\n"), 0o644))
	require.ErrorContains(t, checkImageOverrides(file), file+" has images: take them out")
}
