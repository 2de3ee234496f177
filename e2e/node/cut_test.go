package node

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/updater/rollouts"
)

const observed = 5 * time.Minute

// Throttling and CPU pressure after a reduction are read from Prometheus.
func TestRevert_CPUReductionHarms(t *testing.T) {
	t.Parallel()
	t.Run("throttled", testRevertsThrottledContainer)
	t.Run("waiting", testRevertsWaitingContainer)
}

func testRevertsThrottledContainer(t *testing.T) {
	t.Parallel()
	w := run(t, "throttled", burner{harness.Container{CPU: "200m", Memory: "20Mi", CPULimit: "200m"}, "100m", "10Mi"})
	before := awaitRunning(t, w)
	requireMetric(t, before, periods)
	awaitShare(t, before, longestWait, func(s rollouts.CPUPressure) float64 { return s.Throttled })
	limit := func(pod *corev1.Pod) string { return pod.Spec.Containers[0].Resources.Limits.Cpu().String() }
	at := reduceCPU(t, w, before, "50m", limit)
	awaitReverted(t, w, before, at, limit)
	took(t, "throttled: throttled after a cut, CPU given back, since the cut", at)
	eventually(t, longestWait, "the record says why", func() error { return checkReverted(t.Context(), w, "Throttled") })
}

func testRevertsWaitingContainer(t *testing.T) {
	t.Parallel()
	w := run(t, "waiting", burner{harness.Container{CPU: "400m", Memory: "20Mi"}, "300m", "10Mi"})
	before := awaitRunning(t, w)
	requireMetric(t, before, waiting)
	awaitShare(t, before, observed+longestWait, func(s rollouts.CPUPressure) float64 { return s.Waiting })
	asked := func(pod *corev1.Pod) string { cpu := request(pod, corev1.ResourceCPU); return cpu.String() }
	at := reduceCPU(t, w, before, "10m", asked)
	awaitRunning(t, run(t, "crowd", burner{harness.Container{CPU: "300m", Memory: "20Mi"}, fmt.Sprint(runtime.NumCPU()), "10Mi"}))
	awaitReverted(t, w, before, at, asked)
	took(t, "waiting: waits for CPU after a cut, CPU given back, since the cut", at)
	eventually(t, longestWait, "the record says why", func() error { return checkReverted(t.Context(), w, "Pressure") })
}

// reduceCPU makes the updater lower the CPU of a pod, and returns the time when the change is
// applied. has returns the current value.
func reduceCPU(t *testing.T, w harness.Workload, before *corev1.Pod, to string, has func(pod *corev1.Pod) string) time.Time {
	t.Helper()
	createPolicy(t, w)
	createAdvisedVPA(t, w, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(to), corev1.ResourceMemory: resource.MustParse("20Mi")})
	resized(t, w, before, func(pod *corev1.Pod) error { return checkEqual(to, has(pod)) })
	return time.Now()
}

func awaitReverted(t *testing.T, w harness.Workload, before *corev1.Pod, at time.Time, has func(pod *corev1.Pod) string) {
	t.Helper()
	eventually(t, observed+longestWait, w.Name+" has its CPU back", func() error {
		pod, err := onlyPod(t.Context(), w)
		if err == nil {
			err = checkEqual(has(before), has(pod))
		}
		return err
	})
	require.Greater(t, time.Since(at), observed-10*time.Second, "it was noted a moment before it was in force")
	resized(t, w, before, func(pod *corev1.Pod) error { return checkEqual(has(before), has(pod)) })
}

func checkEqual(want, has string) error {
	if has != want {
		return errors.New("it has " + has + ", not " + want)
	}
	return nil
}
