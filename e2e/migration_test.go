package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Who replaces the recommender of the reference by ours goes on from its checkpoints, and so does who
// goes back: recommendations do not fall, and nothing of the history is lost.
func TestMovingOverFromTheReferenceAndBack(t *testing.T) {
	if os.Getenv("LOADLINE_MIGRATION") == "" {
		t.Skip("make e2e-migration looks at it: to build a program of the reference takes minutes, in which other promises would wait for the processors")
	}
	binary := filepath.Join(t.TempDir(), "recommender") // metrics have the name of the program
	require.NoError(t, harness.BuildReference(t.Context(), "./pkg/recommender", binary))
	reference, err := cluster.Foreign(t.Context(), binary, "reference-recommender", "--recommender-name=moving", "--recommender-interval=2s")
	require.NoError(t, err)
	ours, err := cluster.Daemon(t.Context(), "recommender", "recommender-moving", "--recommender-name=moving", "--recommender-interval=2s", "--checkpoints-interval=5s")
	require.NoError(t, err)
	w := harness.Workload{
		Namespace: namespace(t, "moving"), Name: "db", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "700m", "900Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, reference.Start(t.Context()))
	t.Cleanup(func() {
		reference.Stop()
		ours.Stop()
		require.NoError(t, cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "clusterrolebinding", "vpa-reference-recommender"))
	})
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, naming("moving")))
	before := onlyContainer(t, awaitRecommendation(t, w))
	for _, move := range []struct{ from, to *harness.Daemon }{{reference, ours}, {ours, reference}} {
		held := awaitCheckpoint(t, w, "app", 4)
		move.from.Stop()
		require.NoError(t, move.to.Start(t.Context()))
		eventually(t, "two passes", func() error {
			if passes(t, move.to) < 2 {
				return errors.New("not yet")
			}
			return nil
		})
		during(t, 8*time.Second, func() {
			after := onlyContainer(t, getVPA(t, w))
			for _, kind := range kinds {
				notLess(t, before.Target, after.Target, kind, "target")
			}
		})
		kept := awaitCheckpoint(t, w, "app", held.Status.TotalSamplesCount+1)
		require.Equal(t, held.UID, kept.UID, "the same object")
		require.Equal(t, held.Status.FirstSampleStart, kept.Status.FirstSampleStart, "the same history")
		before = onlyContainer(t, getVPA(t, w))
	}
}
