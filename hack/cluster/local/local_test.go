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
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{name: "unknown command", args: []string{"start"}, want: "unknown command; want up, down"},
		{name: "up without a folder", args: []string{"up"}, want: "--dir: want the folder"},
		{name: "up with an argument", args: []string{"up", "--dir", "x", "y"}, want: `want no arguments besides flags, got "y"`},
		{name: "down with an unknown flag", args: []string{"down", "--nodes", "3"}, want: "unknown flag: --nodes"},
		{name: "run without a command", args: []string{"run", "--dir", "x"}, want: "want a command after --"},
		{name: "load without an archive", args: []string{"load", "--dir", "x"}, want: "want archives of images"},
		{name: "load without a real node", args: []string{"load", "--dir", "x", "image.tar"}, want: "no real node in"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, err := dispatch(tc.args[0], tc.args[1:])
			require.NotZero(t, code)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}
