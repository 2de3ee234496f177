package deb

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesOf_ParsesAptOutput(t *testing.T) {
	const runc = "'http://deb.debian.org/debian/pool/main/r/runc/runc_1.1.5%2bds1-1_amd64.deb' runc_1.1.5+ds1-1_amd64.deb 2709960 SHA256:0"
	const containerd = "'http://deb.debian.org/debian/c/containerd_1.6.20_amd64.deb' containerd_1.6.20_amd64.deb 25903404 "
	names, err := filesOf(runc+"\n"+containerd, Runtime)
	require.NoError(t, err)
	require.Equal(t, []string{"containerd_1.6.20_amd64.deb", "runc_1.1.5+ds1-1_amd64.deb"}, names, "in the order of the packages")
	for _, lines := range []string{"", runc, "E: no package"} {
		_, err := filesOf(lines, Runtime)
		require.ErrorContains(t, err, "want the URI and the name of each of the packages [containerd runc]")
	}
}

func TestUnpacked_UsesNewestCompleteSet(t *testing.T) {
	parent := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(parent, "runc_1_amd64"), 0o755))
	require.Nil(t, unpacked(parent, Runtime), "half is nothing")
	require.NoError(t, os.Mkdir(filepath.Join(parent, "containerd_1_amd64"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(parent, "containerd_2_amd64"), 0o755))
	require.Equal(t, Unpacked{filepath.Join(parent, "containerd_2_amd64"), filepath.Join(parent, "runc_1_amd64")}, unpacked(parent, Runtime))
}

func TestProgram_SearchesAllPackages(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(second, "usr", "sbin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(second, "usr", "sbin", "runc"), nil, 0o755))
	path, err := Unpacked{first, second}.Program("runc")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(second, "usr", "sbin", "runc"), path)
	_, err = Unpacked{first, second}.Program("ctr")
	require.ErrorContains(t, err, "program ctr is in none of "+first)
}

func TestLibraries_SkipsPackagesWithoutLibraries(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	folder := filepath.Join(second, "usr", "lib", "x86_64-linux-gnu")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(first, "usr", "lib", "cni"), 0o755))
	require.Equal(t, []string{folder}, Unpacked{first, second}.Libraries())
}
