package supervise

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/hack/cluster/instance"
)

func TestSupervisorStopsWithTheCommandThatStartedIt(t *testing.T) {
	var cause error
	watchLease(strings.NewReader(string(rune(ReleaseByte))), func(err error) { cause = err })
	require.NoError(t, cause, "let go")
	watchLease(strings.NewReader(""), func(err error) { cause = err })
	require.ErrorContains(t, cause, "is gone")
}

func TestAPortTakenIsToldFromOtherFailures(t *testing.T) {
	s := &spawner{folder: instance.Folder(t.TempDir())}
	require.NoError(t, os.Mkdir(s.folder.Path(instance.LogsDir), 0o755))
	fail := func(log string) error {
		require.NoError(t, os.WriteFile(s.folder.Log("etcd"), []byte(log), 0o644))
		return s.failure(&child{name: "etcd", err: errors.New("exit status 1")})
	}
	require.ErrorIs(t, fail("listen tcp 127.0.0.1:1: bind: address already in use\n"), errPortTaken)
	err := fail(strings.Repeat("old\n", 100) + "the reason\n")
	require.NotErrorIs(t, err, errPortTaken)
	require.ErrorContains(t, err, "etcd died: exit status 1")
	require.ErrorContains(t, err, "the reason")
	require.Less(t, strings.Count(err.Error(), "old"), 20)
}

func TestStagesAreValidAndSelectByOurAnnotations(t *testing.T) {
	files, err := stages.ReadDir("stages")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := stages.ReadFile("stages/" + file.Name())
		require.NoError(t, err)
		var stage struct {
			Kind     string
			Metadata struct{ Name string }
		}
		require.NoError(t, yaml.Unmarshal(data, &stage), file.Name())
		require.Equal(t, "Stage", stage.Kind)
		require.Equal(t, strings.TrimSuffix(file.Name(), ".yaml"), stage.Metadata.Name)
	}
}
