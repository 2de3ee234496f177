package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

var kinds = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

func TestRecommender_KeepsRecommendationAfterKill(t *testing.T) {
	parallelTest(t)
	own := ownRecommender(t, "restarted")
	w := harness.Workload{
		Namespace: namespace(t, "restart"), Name: "db", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "700m", "900Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withRecommender("restarted")))
	before := onlyContainer(t, awaitRecommendation(t, w))
	awaitCheckpoint(t, w, "app", 1)

	// Without pods the recommendation comes from the checkpoint alone.
	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "scale", "deployment", w.Name, "--replicas=0"))
	eventually(t, "pods of db are gone", func() error {
		if n := len(pods(t, w)); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	own.Kill()
	require.NoError(t, own.Start(t.Context()))
	during(t, 8*time.Second, func() {
		after := onlyContainer(t, getVPA(t, w))
		for _, kind := range kinds {
			requireNotLess(t, before.Target, after.Target, kind, "target")
		}
	})
	require.True(t, own.Running())
}

// The bounds depend on the confidence, which the checkpoint preserves.
func TestRecommender_KeepsBoundsAfterKill(t *testing.T) {
	parallelTest(t)
	own := ownRecommender(t, "bounds")
	w := harness.Workload{
		Namespace: namespace(t, "bounds"), Name: "db", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "700m", "900Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withRecommender("bounds")))
	awaitRecommendation(t, w)
	known := awaitCheckpoint(t, w, "app", 4)
	own.Kill()
	before := onlyContainer(t, getVPA(t, w))
	require.NoError(t, own.Start(t.Context()))
	eventually(t, "two passes", func() error {
		if iterationCount(t, own) < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	during(t, 8*time.Second, func() {
		after := onlyContainer(t, getVPA(t, w))
		for _, kind := range kinds {
			lower, wasLower := after.LowerBound[kind], before.LowerBound[kind]
			upper, wasUpper := after.UpperBound[kind], before.UpperBound[kind]
			require.GreaterOrEqual(t, lower.AsApproximateFloat64(), 0.99*wasLower.AsApproximateFloat64(), "lower bound of %s, with %d samples in the checkpoint", kind, known.Status.TotalSamplesCount)
			require.LessOrEqual(t, upper.AsApproximateFloat64(), 1.01*wasUpper.AsApproximateFloat64(), "upper bound of %s, with %d samples in the checkpoint", kind, known.Status.TotalSamplesCount)
		}
	})
}

// A memory peak counts for its whole window, even if the recommender is killed within the window
// and usage falls afterwards.
func TestRecommender_KeepsMemoryPeakAfterKill(t *testing.T) {
	parallelTest(t)
	own := ownRecommender(t, "peaks")
	w := harness.Workload{
		Namespace: namespace(t, "peaks"), Name: "batch", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "200m", "900Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withRecommender("peaks")))
	before := onlyContainer(t, awaitRecommendation(t, w))
	atLeast(t, "900Mi", before.Target[corev1.ResourceMemory], "memory target")
	awaitCheckpoint(t, w, "app", 1)
	annotate(t, w, harness.Uses("app", "200m", "320Mi"))
	awaitMemoryUsage(t, w, "400Mi")
	own.Kill()
	require.NoError(t, own.Start(t.Context()))
	during(t, 12*time.Second, func() {
		requireNotLess(t, before.Target, onlyContainer(t, getVPA(t, w)).Target, corev1.ResourceMemory, "target")
	})
}
