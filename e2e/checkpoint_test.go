package e2e

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func TestCheckpoint_DeletedWithItsVPA(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "orphan"), Name: "short-lived", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "200m", "300Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff))
	checkpoints := cluster.VPA.AutoscalingV1().VerticalPodAutoscalerCheckpoints(w.Namespace)
	eventually(t, "a checkpoint", func() error {
		_, err := checkpoints.Get(t.Context(), "short-lived-app", metav1.GetOptions{})
		return err
	})
	shown, err := cluster.KubectlOutput(t.Context(), "get", "checkpoints", "-n", w.Namespace)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^NAME +VPA +CONTAINER +SAMPLES +NEWEST +AGE$`, shown)
	require.Regexp(t, `(?m)^short-lived-app +short-lived +app +\d+ +\d+m?\d*s +\d+m?\d*s$`, shown)
	require.NoError(t, cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).Delete(t.Context(), w.Name, metav1.DeleteOptions{}))
	eventually(t, "the checkpoint is removed", func() error {
		_, err := checkpoints.Get(t.Context(), "short-lived-app", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}
