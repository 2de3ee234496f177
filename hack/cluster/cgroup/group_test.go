package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/hack/cluster/instance"
)

// tree creates folders with the file that marks cgroups.
func tree(t *testing.T, folders ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, folder := range folders {
		path := filepath.Join(root, folder)
		require.NoError(t, os.MkdirAll(path, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(path, "cgroup.procs"), nil, 0o644))
	}
	return root
}

func TestGroup_CreatedAndRemovedInEveryHierarchy(t *testing.T) {
	root := tree(t, "cpu,cpuacct", "cpuset", "memory", "pids")
	require.NoError(t, os.Symlink("cpu,cpuacct", filepath.Join(root, "cpu")))
	require.NoError(t, os.Mkdir(filepath.Join(root, "empty"), 0o755))
	self, err := instance.ProcessOf(os.Getpid())
	require.NoError(t, err)
	group, err := create(root, self)
	require.NoError(t, err)
	for _, hierarchy := range []string{"cpu,cpuacct", "cpuset", "memory", "pids"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, hierarchy, group.Path(), "kubepods", "pod"), 0o755))
	}
	require.NoDirExists(t, filepath.Join(root, "empty", group.Path()))
	require.NoError(t, removeStale(root))
	require.DirExists(t, filepath.Join(root, "memory", group.Path(), "kubepods"), "its supervisor lives")
	require.NoError(t, group.Remove())
	left, err := filepath.Glob(filepath.Join(root, "*", groupPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, group.Remove(), "nothing there is no error")
}

func TestRemoveStale_RemovesOnlyGroupsOfDeadSupervisors(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Start())
	gone, err := instance.ProcessOf(cmd.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	root := tree(t, "cpu", "cpuset", "memory", "pids")
	_, err = create(root, gone)
	require.NoError(t, err)
	foreign := filepath.Join(root, "memory", groupPrefix+"of-somebody")
	require.NoError(t, os.Mkdir(foreign, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(root, groupPrefix+"1-1"), 0o755), "of a unified hierarchy")
	require.NoError(t, removeStale(root))
	left, err := filepath.Glob(filepath.Join(root, "*", groupPrefix+"*"))
	require.NoError(t, err)
	require.Equal(t, []string{foreign}, left)
	require.NoDirExists(t, filepath.Join(root, groupPrefix+"1-1"))
	require.NoError(t, removeStale(filepath.Join(root, "nowhere")))
}

func TestHierarchies_ReportsMissingControllers(t *testing.T) {
	_, err := hierarchies(tree(t, "cpu", "memory", "pids"))
	require.ErrorContains(t, err, "there is no control group hierarchy")
	require.ErrorContains(t, err, "cpuset")

	unified := tree(t, ".")
	control := filepath.Join(unified, "cgroup.subtree_control")
	require.NoError(t, os.WriteFile(control, []byte("cpu memory pids\n"), 0o644))
	_, err = hierarchies(unified)
	require.ErrorContains(t, err, "controller cpuset is not enabled for groups below "+unified)
	require.NoError(t, os.WriteFile(control, []byte("cpuset cpu io memory pids\n"), 0o644))
	found, err := hierarchies(unified)
	require.NoError(t, err)
	require.Equal(t, []string{unified}, found)
}
