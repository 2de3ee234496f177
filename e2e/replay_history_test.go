package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/e2e/replay"
)

// The first recommendation after a backfill from Prometheus must equal the backtester's at the end
// of the recording.
//
// The recipe attune is left out, because it depends on previous requests, and the backtester
// simulates its own.
func TestReplay_BackfillMatchesBacktest(t *testing.T) {
	parallelTest(t)
	t.Run("recordings of the repository", func(t *testing.T) {
		t.Parallel()
		all, err := replay.Seconds(recordings("steady", "growing", "spiky")...)
		require.NoError(t, err)
		all.Name, all.CPURequest, all.MemoryRequest = "all", "500m", "512Mi"
		short, err := replay.Seconds(recordings("spiky")...)
		require.NoError(t, err)
		short.Cut(300).Name, short.CPURequest, short.MemoryRequest = "short", "500m", "512Mi"
		replayHistory(t, "replay-past", []string{"vpa", "loadline", "loadline:cpu=tracking,memory=safe", "autopilot", "autopilot:models=ensemble", "crane", "cruisekube"}, all, short)
	})
	t.Run("shared recordings", func(t *testing.T) {
		t.Parallel()
		dir := os.Getenv("TRACES")
		if dir == "" {
			dir = filepath.Join("..", "..", "shared", "data", "traces")
		}
		var all []*replay.Recording
		for _, file := range []struct {
			name string
			most int // maximum number of containers
		}{{"nezha-train-ticket", 3}, {"alibaba2018-vasim-cpu", 1}, {"kruize-tfb", 1}} {
			found, err := replay.Containers(filepath.Join(dir, file.name+".csv.gz"), file.name, file.most)
			if errors.Is(err, os.ErrNotExist) {
				t.Skipf("there are no shared recordings: %v; TRACES=<directory> names another place", err)
			}
			require.NoError(t, err)
			all = append(all, found...)
		}
		replayHistory(t, "replay-shared", []string{"vpa", "loadline"}, all...)
	})
}

func replayHistory(t *testing.T, name string, recipes []string, recordings ...*replay.Recording) {
	t.Helper()
	ns := namespace(t, name)
	var all []*replayedWorkload
	var played []*replay.Pod
	for _, r := range recordings {
		r.EndAt(time.Now().Truncate(time.Second)) // until it is placed at its final time
		for _, text := range recipes {
			l := deploy(t, ns, name, text, r, "")
			all, played = append(all, l), append(played, l.Pod)
		}
	}
	past := replay.NewPast(played)
	t.Cleanup(past.Close)
	own := replayRecommender(t, name, name, "--recommender-interval=2s", "--storage=prometheus", "--prometheus-address="+past.Address(),
		"--history-length="+past.Length(), "--history-resolution=1m", "--container-pod-name-label=pod", "--container-name-label=container")
	require.NoError(t, own.Start(t.Context()))
	eventually(t, "the first pass of "+name, func() error {
		if iterationCount(t, own) < 1 {
			return errors.New("not yet")
		}
		return nil
	})
	require.True(t, past.Placed())
	story, err := replay.Backtest(t.Context(), pluginBinary(t), t.TempDir(), "none", false, recipes, recordings...)
	require.NoError(t, err)
	var found []string
	minutes := 0
	for _, l := range all {
		minutes += len(l.Recording.Samples)
		found = append(found, l.differences(t, story.Final)...)
	}
	if len(found) > 0 {
		t.Fatalf("after the history of %s:\n%s", past.Length(), strings.Join(found, "\n"))
	}
	fmt.Printf("%s: %d workloads with %d samples, history of %s: all recommendations are those of the backtester\n", name, len(all), minutes, past.Length())
}
