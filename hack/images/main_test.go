package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/hack/images/build"
)

// Two clones of a commit in different folders give the same images, to the byte. Each runs as
// nobody, starts its program, and holds that, the certificates and the names of users.
func TestImagesAreTheSameWhereverTheyAreBuilt(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: it builds all programs")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	platform := "linux/" + runtime.GOARCH
	built := func(folder string) string {
		clone := filepath.Join(t.TempDir(), folder)
		output, err := exec.Command("git", "clone", "--quiet", root, clone).CombinedOutput()
		require.NoError(t, err, string(output))
		t.Chdir(clone)
		out := filepath.Join(clone, "dist")
		require.NoError(t, run(out, "v1.2.3", platform, t.Output()))
		return out
	}
	first, second := built("one"), built("another/folder")
	require.Equal(t, contents(t, first), contents(t, second))

	for _, program := range build.Daemons {
		prefix := filepath.Join(first, "loadline-"+program)
		image, err := tarball.ImageFromPath(prefix+"-linux-"+runtime.GOARCH+".tar", nil)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{program, "etc/passwd", "etc/group", "etc/ssl/certs/ca-certificates.crt"}, packed(t, image))
		config, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, []string{"/" + program}, config.Config.Entrypoint)
		require.Equal(t, "65534:65534", config.Config.User)
		require.Equal(t, runtime.GOARCH, config.Architecture)

		index, err := layout.ImageIndexFromPath(prefix)
		require.NoError(t, err)
		top, err := index.IndexManifest()
		require.NoError(t, err)
		require.Equal(t, "v1.2.3", top.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
		platforms, err := index.ImageIndex(top.Manifests[0].Digest)
		require.NoError(t, err)
		one, err := platforms.IndexManifest()
		require.NoError(t, err)
		require.Equal(t, platform, one.Manifests[0].Platform.String())
		digest, err := image.ConfigName() // archives have another list of layers
		require.NoError(t, err)
		inside, err := platforms.Image(one.Manifests[0].Digest)
		require.NoError(t, err)
		same, err := inside.ConfigName()
		require.NoError(t, err)
		require.Equal(t, same, digest)

		text, err := os.ReadFile(prefix + "-linux-" + runtime.GOARCH + ".spdx.json")
		require.NoError(t, err)
		var parts v2_3.Document
		require.NoError(t, json.Unmarshal(text, &parts))
		var names []string
		for _, p := range parts.Packages {
			require.NotEmpty(t, p.PackageVersion, p.PackageName)
			names = append(names, p.PackageName)
		}
		require.Subset(t, names, []string{"loadline.dev/loadline", "std", "k8s.io/client-go", "golang.org/x/crypto/x509roots/fallback"})
	}

	check := exec.Command("sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS")
	check.Dir = first
	output, err := check.CombinedOutput()
	require.NoError(t, err, string(output))
}

// contents returns the files below a folder.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, folder)] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	}))
	return all
}

// packed returns the paths of an image's files.
func packed(t *testing.T, image v1.Image) (paths []string) {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		require.NoError(t, err)
		for files := tar.NewReader(content); ; {
			header, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			paths = append(paths, header.Name)
		}
		require.NoError(t, content.Close())
	}
	return paths
}

func TestBadFlagsSayWhatWouldBeRight(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	t.Chdir(root)
	require.ErrorContains(t, run(t.TempDir(), "v1", "amd64", io.Discard), `-platforms: "amd64" is no platform such as linux/amd64`)
	require.ErrorContains(t, run(t.TempDir(), "v 1", "linux/amd64", io.Discard), "-tag: ")
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	require.ErrorContains(t, run(t.TempDir(), "v1", "linux/amd64", io.Discard), "SOURCE_DATE_EPOCH: ")
}
