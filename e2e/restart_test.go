package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// A recommender that is killed without warning and comes back goes on from its
// checkpoints: the recommendation is never taken away and does not fall. It is a
// recommender of its own, with its own name, so that the others are not
// disturbed.
func TestRecommenderRestartKeepsTheRecommendation(t *testing.T) {
	t.Parallel()
	own, err := cluster.Daemon(t.Context(), "recommender", "recommender-restarted",
		"--recommender-name=restarted", "--recommender-interval=2s")
	require.NoError(t, err)
	require.NoError(t, own.Start(t.Context()))
	t.Cleanup(own.Stop)

	w := harness.Workload{
		Namespace: namespace(t, "restart"), Name: "db", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "700m", "900Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "restarted"}}
	}))
	before := awaitRecommendation(t, w).Status.Recommendation.ContainerRecommendations[0]
	eventually(t, "checkpoint with samples", func() error {
		out, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "checkpoints", "db-app", "-o=jsonpath={.status.totalSamplesCount}")
		if err == nil && (out == "" || out == "0") {
			err = fmt.Errorf("%q samples", out)
		}
		return err
	})

	// The pods go away as well: what is recommended now comes from the checkpoint alone.
	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "scale", "deployment", w.Name, "--replicas=0"))
	eventually(t, "pods of db are gone", func() error {
		if n := len(pods(t, w)); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	own.Kill()
	require.NoError(t, own.Start(t.Context()))
	for range 8 {
		time.Sleep(time.Second)
		status := getVPA(t, w).Status
		require.NotNil(t, status.Recommendation, "the recommendation was taken away")
		require.Len(t, status.Recommendation.ContainerRecommendations, 1)
		after := status.Recommendation.ContainerRecommendations[0]
		for _, kind := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			was, is := before.Target[kind], after.Target[kind]
			require.GreaterOrEqual(t, is.Cmp(was), 0, "the %s target fell from %s to %s", kind, was.String(), is.String())
		}
	}
	require.True(t, own.Running())
}
