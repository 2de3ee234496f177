package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func awaitReplaced(t *testing.T, limit time.Duration, w harness.Workload, before []corev1.Pod) {
	t.Helper()
	within(t, limit, "all pods of "+w.Namespace+" are replaced", func() error {
		for _, pod := range pods(t, w) {
			for _, old := range before {
				if pod.UID == old.UID {
					return fmt.Errorf("%s is still there", pod.Name)
				}
			}
		}
		return nil
	})
}

func sameUIDs(t *testing.T, d time.Duration, w harness.Workload, before []corev1.Pod) {
	t.Helper()
	during(t, d, func() {
		after := pods(t, w)
		require.Len(t, after, len(before))
		for i := range after {
			require.Equal(t, before[i].UID, after[i].UID, "a pod was replaced")
		}
	})
}

// A node without room defers a resize. The pod is evicted after five minutes, even if the updater
// restarts meanwhile.
func TestResize_DeferredIsEvictedAfterFiveMinutes(t *testing.T) {
	parallelTest(t)
	w, before := deferredScenario.begun(t)
	awaitReplaced(t, longestWait+12*time.Minute, w, before)
	for _, pod := range pods(t, w) {
		require.Greater(t, pod.CreationTimestamp.Sub(deferredScenario.since), 4*time.Minute+30*time.Second, "the successor came early")
	}
}

func TestResize_FailedIsEvictedAtOnce(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "resize-error", 2)
	w.Annotations = harness.With(w.Annotations, harness.ResizeAnnotation, "error")
	before := startWorkload(t, w)
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, larger)
	awaitReplaced(t, longestWait, w, before)
}

func TestResize_ModeInPlaceNeverEvicts(t *testing.T) {
	parallelTest(t)
	for answer, reason := range map[string]string{"defer": "Deferred", "infeasible": "Infeasible", "error": "ResizeFailed"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			w := newWorkload(t, "inplace-"+answer, 2)
			w.Annotations = harness.With(w.Annotations, harness.ResizeAnnotation, answer)
			before := startWorkload(t, w)
			createVPAWithTarget(t, w, vpav1.UpdateModeInPlace, larger)
			awaitSkipped(t, w.Namespace, reason)
			sameUIDs(t, 30*time.Second, w, before)
		})
	}
}

// A container with a memory limit below its usage would be OOM-killed.
func TestResize_KeepsMemoryLimitAboveUsage(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "in-use", 2)
	w.Containers[0].Memory, w.Containers[0].MemoryLimit = "600Mi", "600Mi"
	w.Annotations = harness.Uses("app", "50m", "500Mi")
	before := startWorkload(t, w)
	eventually(t, "the usage is known", func() error {
		list, err := cluster.Usage.MetricsV1beta1().PodMetricses(w.Namespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) < 2 {
			err = fmt.Errorf("of %d pods", len(list.Items))
		}
		return err
	})
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, resourceList("100m", "300Mi")) // a tenth above 500Mi is no worthwhile reduction from 600Mi
	awaitSkipped(t, w.Namespace, "MemoryInUse")
	requireUnchanged(t, w, before)
	require.Zero(t, restarts(&pods(t, w)[0]))
}

func TestStartupBoost_EndsInPlace(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "boost", 1)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial, withRecommender("nobody"), func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3)), DurationSeconds: new(int32(15))}}
	}))
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	before := awaitRunning(t, w)
	require.Equal(t, "300m", before[0].Spec.Containers[0].Resources.Requests.Cpu().String(), "boosted by the admission controller")
	require.Contains(t, before[0].Annotations, "vpaCpuStartupBoost/app")
	awaitSized(t, w, "100m")
	eventually(t, "the annotation goes", func() error {
		if pod := pods(t, w)[0]; pod.Annotations["vpaCpuStartupBoost/app"] != "" {
			return fmt.Errorf("%s has it", pod.Name)
		}
		return nil
	})
	require.Equal(t, before[0].UID, pods(t, w)[0].UID)
	require.Zero(t, restarts(&pods(t, w)[0]))
}

// Kills the updater while a resize is in progress. The next updater waits for the node, resizes the
// pods once and evicts none.
func TestUpdater_ResumesResizeAfterKill(t *testing.T) {
	exclusiveTest(t, processFirst)
	w := newWorkload(t, "killed-resize", 2)
	w.Annotations = harness.With(w.Annotations, "sim.loadline.dev/resize-after", "20s")
	before := startWorkload(t, w)
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, larger)
	eventually(t, "a resize is under way", func() error {
		for _, pod := range pods(t, w) {
			if pod.Spec.Containers[0].Resources.Requests.Cpu().String() == "300m" {
				return nil
			}
		}
		return fmt.Errorf("no pod was resized")
	})
	updater.Kill()
	require.NoError(t, updater.Start(t.Context()))
	eventually(t, "both pods run with their size", func() error {
		for i, pod := range pods(t, w) {
			require.Equal(t, before[i].UID, pod.UID)
			if s := pod.Status.ContainerStatuses[0].Resources; s == nil || s.Requests.Cpu().String() != "300m" {
				return fmt.Errorf("%s runs with %v", pod.Name, s)
			}
		}
		return nil
	})
	require.Zero(t, restarts(&pods(t, w)[0]))
}

// Evictions require the heartbeat of the admission controller. The test runs alone, because other
// tests need it.
func TestEviction_PausesWithoutAdmissionController(t *testing.T) {
	exclusiveTest(t, processSecond)
	w := newWorkload(t, "no-heartbeat", 2)
	before := startWorkload(t, w)
	admission.Kill()
	defer func() { require.NoError(t, admission.Start(t.Context())) }()
	within(t, longestWait, "the updater misses the heartbeat", func() error {
		metrics, err := updater.Metrics(t.Context())
		if err == nil && metrics[`vpa_updater_admission_controller_status_invalid_total{reason="invalid"}`] == 0 {
			err = fmt.Errorf("no pass was skipped")
		}
		return err
	})
	createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger)
	requireUnchanged(t, w, before)
}
