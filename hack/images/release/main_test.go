package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/hack/images/build"
)

// Two clones of a commit in different folders must give the same release, byte for byte, with all
// published files, consistent versions and correct checksums.
func TestRelease_IsReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: it builds all programs")
	}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	if output, err := exec.Command("git", "-C", root, "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("skipped: a release is built from a commit, and there is none here: %s", output)
	}
	platform := "linux/" + runtime.GOARCH
	built := func(folder string) string {
		clone := filepath.Join(t.TempDir(), folder)
		output, err := exec.Command("git", "clone", "--quiet", root, clone).CombinedOutput()
		require.NoError(t, err, string(output))
		t.Chdir(clone)
		out := filepath.Join(clone, "dist")
		require.NoError(t, run(options{version: "v1.2.3", out: out, platforms: platform, pluginPlatforms: platform}, t.Output()))
		return out
	}
	first, second := built("one"), built("another/folder")
	sums := contents(t, first)
	require.Equal(t, sums, contents(t, second))

	require.ElementsMatch(t, expectedFiles(), slices.DeleteFunc(slices.Collect(maps.Keys(sums)), func(name string) bool { return strings.Contains(name, "/blobs/") }))
	checkSums(t, first, sums)
	checkImages(t, filepath.Join(first, "images"))
	for _, program := range build.Daemons {
		checkProgram(t, first, "loadline-"+program, program)
	}
	checkProgram(t, first, plugin, plugin)
	checkManifests(t, first)

	require.NoError(t, os.WriteFile("note", nil, 0o644))
	of, err := build.Commit()
	require.NoError(t, err)
	require.Contains(t, of.Revision, "-dirty")
	_, err = checkVersion(options{version: "v1.2.3"}, of)
	require.ErrorContains(t, err, "commit them")
	require.ErrorContains(t, err, "?? note")
	said, err := checkVersion(options{version: "v1.2.3", allowDirty: true}, of)
	require.NoError(t, err)
	require.Equal(t, "v1.2.3+dirty", said)
}

// expectedFiles returns the files of a release for this platform, except blobs of image layouts.
func expectedFiles() []string {
	names := []string{"SHA256SUMS", "loadline-1.2.3.tgz", "loadline-v1.2.3.yaml", "loadline-deploy-v1.2.3.tar.gz"}
	for _, program := range []string{"loadline-recommender", "loadline-updater", "loadline-admission-controller", "kubectl-loadline"} {
		prefix := program + "-v1.2.3-linux-" + runtime.GOARCH
		names = append(names, prefix+".tar.gz", prefix+".spdx.json")
	}
	for _, image := range []string{"loadline-recommender", "loadline-updater", "loadline-admission-controller"} {
		prefix := "images/" + image
		names = append(names, prefix+"/index.json", prefix+"/oci-layout", prefix+"-linux-"+runtime.GOARCH+".tar", prefix+"-linux-"+runtime.GOARCH+".spdx.json")
	}
	return names
}

func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, folder+"/")] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	}))
	return all
}

// checkSums requires that SHA256SUMS lists the checksum of every other file, in the format of
// sha256sum.
func checkSums(t *testing.T, folder string, sums map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "SHA256SUMS"))
	require.NoError(t, err)
	written := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		written[name] = sum
	}
	delete(sums, "SHA256SUMS")
	require.Equal(t, sums, written)
	check := exec.Command("sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS")
	check.Dir = folder
	output, err := check.CombinedOutput()
	require.NoError(t, err, string(output))
}

func checkProgram(t *testing.T, folder, name, program string) {
	t.Helper()
	full := name + "-v1.2.3-linux-" + runtime.GOARCH
	files := unpacked(t, filepath.Join(folder, full+".tar.gz"))
	require.ElementsMatch(t, []string{full + "/LICENSE", full + "/README.md", full + "/" + program}, slices.Collect(maps.Keys(files)))
	binary := filepath.Join(t.TempDir(), program)
	require.NoError(t, os.WriteFile(binary, files[full+"/"+program], 0o700))
	output, err := exec.Command(binary, "--version").Output()
	require.NoError(t, err)
	require.Regexp(t, "^"+program+` v1\.2\.3 [0-9a-f]{12} go1\.`, string(output))
}

func checkManifests(t *testing.T, folder string) {
	t.Helper()
	var images []string
	for _, program := range build.Daemons {
		archive := filepath.Join(folder, "images/loadline-"+program+"-linux-"+runtime.GOARCH+".tar")
		manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(archive) })
		require.NoError(t, err)
		images = append(images, manifest[0].RepoTags...)
	}
	require.Len(t, images, len(build.Daemons))
	image := regexp.MustCompile(`(?m)^ +image: (.*)$`)
	named := func(manifest []byte) (all []string) {
		for _, one := range image.FindAllSubmatch(manifest, -1) {
			all = append(all, string(one[1]))
		}
		return all
	}
	static, err := os.ReadFile(filepath.Join(folder, "loadline-v1.2.3.yaml"))
	require.NoError(t, err)
	require.ElementsMatch(t, images, named(static))

	const deploy = "loadline-deploy-v1.2.3/deploy/"
	files := unpacked(t, filepath.Join(folder, "loadline-deploy-v1.2.3.tar.gz"))
	require.ElementsMatch(t, images, named(files[deploy+"loadline.yaml"]))
	var base []string
	for _, program := range build.Daemons {
		base = append(base, named(files[deploy+"base/"+program+"/deployment.yaml"])...)
	}
	require.ElementsMatch(t, images, base)
	require.Contains(t, files, deploy+"overlays/recommend-only/kustomization.yaml")

	files = unpacked(t, filepath.Join(folder, "loadline-1.2.3.tgz"))
	require.Contains(t, string(files["loadline/Chart.yaml"]), "\nversion: 1.2.3\nappVersion: v1.2.3\n")
	for _, name := range []string{"values.yaml", "values.schema.json", "templates/deployments.yaml", "files/roles.yaml"} {
		require.NotEmpty(t, files["loadline/"+name], name)
	}
}

func unpacked(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	packed, err := os.ReadFile(archive)
	require.NoError(t, err)
	content, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	all := map[string][]byte{}
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all[header.Name], err = io.ReadAll(files)
		require.NoError(t, err)
	}
}

func TestRelease_RequiresSemanticVersion(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "v1", "v0.1", "v0.1.0.0", "v0.1.0+build", "latest"} {
		err := run(options{version: version, out: t.TempDir()}, io.Discard)
		require.EqualError(t, err, fmt.Sprintf("VERSION=%q is no semantic version such as v0.1.0 or v0.2.0-rc.1", version))
	}
}
