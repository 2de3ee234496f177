package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func TestOOMKill_RaisesMemoryInPlace(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "oom"), Name: "hungry", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "256Mi", CPULimit: "200m", MemoryLimit: "300Mi"}},
		Annotations: harness.Plays("app", "growing", 10),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate))
	eventually(t, "an OOM kill", func() error {
		for _, pod := range pods(t, w) {
			if restarts(&pod) > 0 {
				return nil
			}
		}
		return fmt.Errorf("no container was killed yet")
	})
	eventually(t, "more memory for both pods", func() error {
		for _, pod := range pods(t, w) {
			limit := pod.Spec.Containers[0].Resources.Limits.Memory()
			if limit.Cmp(*quantity("300Mi")) <= 0 {
				return fmt.Errorf("%s has a memory limit of %s", pod.Name, limit)
			}
		}
		return nil
	})
	for i, pod := range pods(t, w) {
		require.Equal(t, before[i].UID, pod.UID, "the pod was evicted though it could be resized")
	}
}

func TestOOMKill_RepeatedKillsRaiseTarget(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "oom-growth"), Name: "hungry", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi", MemoryLimit: "300Mi"}},
		Annotations: harness.With(harness.Uses("app", "200m", "600Mi"), "sim.loadline.dev/restart-ramp", "6s"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate))
	var targets []resource.Quantity // distinct consecutive targets
	eventually(t, "a limit above what the container uses", func() error {
		if r := getVPA(t, w).Status.Recommendation; r != nil && len(r.ContainerRecommendations) == 1 {
			target := r.ContainerRecommendations[0].Target[corev1.ResourceMemory]
			if n := len(targets); n == 0 || target.Cmp(targets[n-1]) != 0 {
				targets = append(targets, target)
			}
		}
		for _, pod := range pods(t, w) {
			if limit := pod.Status.ContainerStatuses[0].Resources.Limits.Memory(); limit.Cmp(*quantity("600Mi")) <= 0 {
				return fmt.Errorf("%s has a memory limit of %s after %d restarts, targets were %v", pod.Name, limit, restarts(&pod), quantityStrings(targets))
			}
		}
		return nil
	})
	require.True(t, slices.IsSortedFunc(targets, func(a, b resource.Quantity) int { return a.Cmp(b) }), "the target fell: %v", quantityStrings(targets))
	require.GreaterOrEqual(t, len(targets), 2, "targets were %v", quantityStrings(targets))
	// A kill at the moment of the resize may be counted after it, so the first ten seconds without
	// a kill decide.
	eventually(t, "no more kills", func() error {
		alive := pods(t, w)
		during(t, 10*time.Second, func() {})
		for i, pod := range pods(t, w) {
			require.Equal(t, before[i].UID, pod.UID, "the pod was evicted though it could be resized")
			if n := restarts(&pod) - restarts(&alive[i]); n != 0 {
				return fmt.Errorf("%s was killed %d times with a limit of %s", pod.Name, n, pod.Spec.Containers[0].Resources.Limits.Memory())
			}
		}
		return nil
	})
}

func quantityStrings(quantities []resource.Quantity) (all []string) {
	for _, q := range quantities {
		all = append(all, q.String())
	}
	return all
}

func TestOOMKill_BeforeFirstSampleGetsRecommendation(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "oom-at-once"), Name: "hungry", Replicas: 1,
		Containers: []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi", MemoryLimit: "300Mi"}},
		// This trace does not exist, so the pod never has usage.
		Annotations: map[string]string{"sim.loadline.dev/trace": "none"},
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff))
	awaitRunning(t, w)
	annotate(t, w, map[string]string{"sim.loadline.dev/oom": "app"})
	got := onlyContainer(t, awaitRecommendationWithin(t, 15*time.Second, w))
	atLeast(t, "400Mi", got.Target[corev1.ResourceMemory], "memory target")
}

// Pods of a Job are not restarted, so this pod is never seen running.
func TestOOMKill_JobPodGetsRecommendation(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "oom-job"), Name: "import", Replicas: 1,
		Containers: []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi", MemoryLimit: "300Mi"}},
	}
	template := jobTemplate(w)
	// No scheduler takes the pod. Its end is written below.
	template.Spec.Template.Spec.SchedulerName = "nobody"
	_, err := cluster.Kube.BatchV1().Jobs(w.Namespace).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}, Spec: template.Spec,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.TargetRef.APIVersion, vpa.Spec.TargetRef.Kind = "batch/v1", "Job"
	}))
	eventually(t, "status of the VPA and pod of the Job", func() error {
		if len(pods(t, w)) == 0 || len(getVPA(t, w).Status.Conditions) == 0 {
			return errors.New("not there")
		}
		return nil
	})
	killed := time.Now()
	pod := pods(t, w)[0]
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://" + string(pod.UID),
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "OOMKilled", ContainerID: "containerd://" + string(pod.UID),
			StartedAt: metav1.NewTime(killed.Add(-time.Second)), FinishedAt: metav1.NewTime(killed),
		}},
	}}
	_, err = cluster.Kube.CoreV1().Pods(w.Namespace).UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	got := onlyContainer(t, awaitRecommendationWithin(t, 15*time.Second, w))
	atLeast(t, "400Mi", got.Target[corev1.ResourceMemory], "memory target")
}
