package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/hack/cluster/instance"
)

func TestDown_CleansUpAfterKilledInstance(t *testing.T) {
	folder := instance.Folder(filepath.Join(t.TempDir(), "cluster"))
	code, err := down(command{folder: folder})
	require.NoError(t, err, "nothing there is no error")
	require.Zero(t, code)

	require.NoError(t, os.MkdirAll(folder.Path(instance.LogsDir), 0o755))
	require.NoError(t, folder.Save(instance.State{Ready: true}))
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	require.NoError(t, folder.SavePID("etcd", cmd.Process.Pid))
	code, err = status(command{folder: folder})
	require.Equal(t, 1, code)
	require.ErrorContains(t, err, "does not run: it was killed")

	code, err = down(command{folder: folder, keepLogs: true})
	require.NoError(t, err)
	require.Zero(t, code)
	require.ErrorContains(t, <-ended, "killed")
	require.DirExists(t, folder.Path(instance.LogsDir))
	require.NoError(t, folder.Claim(), "a folder with old logs can be used again")
	_, err = down(command{folder: folder})
	require.NoError(t, err)
	require.NoDirExists(t, string(folder))
}

func TestDown_RejectsForeignFolder(t *testing.T) {
	folder := instance.Folder(t.TempDir())
	precious := folder.Path("thesis.txt")
	require.NoError(t, os.WriteFile(precious, []byte("x"), 0o644))
	code, err := down(command{folder: folder})
	require.Equal(t, 1, code)
	require.ErrorContains(t, err, "choose a new or empty folder with --dir")
	require.FileExists(t, precious)
}

func TestDispatch_RejectsInvalidCommandLines(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"start"}, "unknown command; want up, down"},
		{[]string{"up"}, "--dir: want the folder"},
		{[]string{"up", "--dir", "x", "y"}, `want no arguments besides flags, got "y"`},
		{[]string{"down", "--nodes", "3"}, "unknown flag: --nodes"},
		{[]string{"run", "--dir", "x"}, "want a command after --"},
		{[]string{"load", "--dir", "x"}, "want archives of images"},
		{[]string{"load", "--dir", "x", "image.tar"}, "no real node in"},
	} {
		code, err := dispatch(c.args[0], c.args[1:])
		require.NotZero(t, code)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "\n")
	}
}
