package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscaling "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// The usage of deleted pods of a CronJob remains in the recommendation and the checkpoint, and the
// next Job's pod starts with the target.
func TestCronJob_KeepsHistoryBetweenJobs(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "cronjob"), Name: "report", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "50m", Memory: "100Mi"}},
		Annotations: harness.With(harness.Uses("app", "400m", "500Mi"), "sim.loadline.dev/complete-after", "40s"),
	}
	createCronJob(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.TargetRef = &autoscaling.CrossVersionObjectReference{APIVersion: "batch/v1", Kind: "CronJob", Name: w.Name}
	}))
	// The schedule never triggers.
	run := func(job string) {
		require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "create", "job", job, "--from=cronjob/"+w.Name))
	}
	run("first")
	before := onlyContainer(t, awaitRecommendation(t, w))
	atLeast(t, "400m", before.Target[corev1.ResourceCPU], "CPU target")
	atLeast(t, "500Mi", before.Target[corev1.ResourceMemory], "memory target")
	saved := awaitCheckpoint(t, w, "app", 1)
	eventually(t, "the first Job is complete", func() error {
		job, err := cluster.Kube.BatchV1().Jobs(w.Namespace).Get(t.Context(), "first", metav1.GetOptions{})
		if err == nil && job.Status.Succeeded == 0 {
			err = errors.New("its pod has not ended")
		}
		return err
	})
	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "delete", "job", "first"))
	eventually(t, "its pod is gone", func() error {
		if len(pods(t, w)) > 0 {
			return errors.New("it is there")
		}
		return nil
	})
	during(t, 10*time.Second, func() {
		after := onlyContainer(t, getVPA(t, w))
		for _, kind := range kinds {
			requireNotLess(t, before.Target, after.Target, kind, "target")
		}
	})
	require.GreaterOrEqual(t, awaitCheckpoint(t, w, "app", 1).Status.TotalSamplesCount, saved.Status.TotalSamplesCount)
	run("second")
	next := awaitRunning(t, w)[0]
	atLeast(t, "400m", next.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU], "CPU request of the next Job's pod")
	atLeast(t, "500Mi", next.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory], "memory request of the next Job's pod")
}

func createCronJob(t *testing.T, w harness.Workload) {
	t.Helper()
	_, err := cluster.Kube.BatchV1().CronJobs(w.Namespace).Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Spec:       batchv1.CronJobSpec{Schedule: "0 0 31 2 *", JobTemplate: jobTemplate(w)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// jobTemplate returns the Job template of the workload, without retries.
func jobTemplate(w harness.Workload) batchv1.JobTemplateSpec {
	template := w.Template()
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template, BackoffLimit: new(int32)}}
}
