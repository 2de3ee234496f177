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

// awaitReplaced waits until no pod is one of those before.
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

// sameUIDs requires for some time that no pod is replaced.
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

// A node without room defers a resize. The pod waits for five minutes, over a restart of
// the updater, too, and is then evicted.
func TestADeferredResizeIsWaitedFor(t *testing.T) {
	together(t)
	w, before := deferred.begun(t)
	awaitReplaced(t, longestWait+12*time.Minute, w, before)
	for _, pod := range pods(t, w) {
		require.Greater(t, pod.CreationTimestamp.Sub(deferred.since), 4*time.Minute+30*time.Second, "the successor came early")
	}
}

// A resize that the node tried and failed is replaced by an eviction at once.
func TestAFailedResizeIsReplacedByAnEviction(t *testing.T) {
	together(t)
	w := plain(t, "resize-error", 2)
	w.Annotations = harness.With(w.Annotations, harness.ResizeAnnotation, "error")
	before := running(t, w)
	advise(t, w, vpav1.UpdateModeInPlaceOrRecreate, larger)
	awaitReplaced(t, longestWait, w, before)
}

// Mode InPlace never evicts, whatever the node answers.
func TestModeInPlaceNeverEvicts(t *testing.T) {
	together(t)
	for answer, reason := range map[string]string{"defer": "Deferred", "infeasible": "Infeasible", "error": "ResizeFailed"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			w := plain(t, "inplace-"+answer, 2)
			w.Annotations = harness.With(w.Annotations, harness.ResizeAnnotation, answer)
			before := running(t, w)
			advise(t, w, vpav1.UpdateModeInPlace, larger)
			awaitLeftAlone(t, w.Namespace, reason)
			sameUIDs(t, 30*time.Second, w, before)
		})
	}
}

// A memory limit is not cut to what the container uses: it would be killed.
func TestAMemoryLimitIsNotCutBelowUsage(t *testing.T) {
	together(t)
	w := plain(t, "in-use", 2)
	w.Containers[0].Memory, w.Containers[0].MemoryLimit = "600Mi", "600Mi"
	w.Annotations = harness.Uses("app", "50m", "500Mi")
	before := running(t, w)
	eventually(t, "the usage is known", func() error {
		list, err := cluster.Usage.MetricsV1beta1().PodMetricses(w.Namespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) < 2 {
			err = fmt.Errorf("of %d pods", len(list.Items))
		}
		return err
	})
	advise(t, w, vpav1.UpdateModeInPlaceOrRecreate, pair("100m", "300Mi")) // of 600Mi a tenth above 500Mi is no cut worth a resize
	awaitLeftAlone(t, w.Namespace, "MemoryInUse")
	unchanged(t, w, before)
	require.Zero(t, restarts(&pods(t, w)[0]))
}

// Containers get more CPU while they start, and it is taken back when the time is
// over, without a restart.
func TestStartupBoost(t *testing.T) {
	together(t)
	w := plain(t, "boost", 1)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial, naming("nobody"), func(vpa *vpav1.VerticalPodAutoscaler) {
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

// The updater is killed while a resize is under way. It comes back, waits for
// the node, and the pods are resized once and never evicted. This test does not
// run beside the others, which need the updater.
func TestTheUpdaterIsKilledDuringAResize(t *testing.T) {
	alone(t, processFirst)
	w := plain(t, "killed-resize", 2)
	w.Annotations = harness.With(w.Annotations, "sim.loadline.dev/resize-after", "20s")
	before := running(t, w)
	advise(t, w, vpav1.UpdateModeInPlaceOrRecreate, larger)
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

// Without the heartbeat of the admission controller nobody is evicted. This test
// does not run beside the others, which need it.
func TestNobodyIsEvictedWithoutAdmissionController(t *testing.T) {
	alone(t, processSecond)
	w := plain(t, "no-heartbeat", 2)
	before := running(t, w)
	admission.Kill()
	defer func() { require.NoError(t, admission.Start(t.Context())) }()
	within(t, longestWait, "the updater misses the heartbeat", func() error {
		metrics, err := updater.Metrics(t.Context())
		if err == nil && metrics[`vpa_updater_admission_controller_status_invalid_total{reason="invalid"}`] == 0 {
			err = fmt.Errorf("no pass was skipped")
		}
		return err
	})
	advise(t, w, vpav1.UpdateModeRecreate, larger)
	unchanged(t, w, before)
}
