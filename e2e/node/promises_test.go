package node

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// longestWait is the default timeout: usage arrives in the metrics API after two scrapes, and the
// machine may be busy.
const longestWait = 3 * time.Minute

// The full node scenario comes last, because it fills the node. TestRevert_CPUReductionHarms runs
// in parallel with all others.
func TestNode_Scenarios(t *testing.T) {
	sharing := sharers(t)
	t.Parallel()
	t.Run("room", func(t *testing.T) {
		t.Run("a spike is served", func(t *testing.T) { testSpikeExceedsShareWhileOthersIdle(t, sharing) })
		t.Run("hungry grows", testBusyPodGrowsInPlace)
		t.Run("idle shrinks", testIdlePodShrinksInPlace)
		t.Run("killed recovers", testOOMKilledPodRecovers)
		t.Run("killed after a cut", testRevertsMemoryReductionAfterOOMKill)
		t.Run("memory in use stays", func(t *testing.T) { testKeepsLimitAboveMemoryUsage(t, "data-stays", vpav1.UpdateModeInPlace) })
		t.Run("memory in use costs no pod", func(t *testing.T) {
			testKeepsLimitAboveMemoryUsage(t, "data-may-go", vpav1.UpdateModeInPlaceOrRecreate)
		})
		t.Run("nothing is left", testNodeLeavesNothingBehind)
	})
	t.Run("full", testFullNodeFollowsUpdateMode)
}

// resized waits until the request of a pod is right and applied, without a replacement or restart.
func resized(t *testing.T, w harness.Workload, before *corev1.Pod, right func(pod *corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, longestWait, w.Name+" is resized", func() (err error) {
		if pod, err = onlyPod(t.Context(), w); err != nil {
			return err
		}
		require.Equal(t, before.UID, pod.UID, "the pod was replaced")
		return errors.Join(right(pod), checkApplied(pod))
	})
	require.Equal(t, before.Status.ContainerStatuses[0].ContainerID, pod.Status.ContainerStatuses[0].ContainerID, "the container was replaced")
	require.Zero(t, restarts(pod))
	return pod
}

func testBusyPodGrowsInPlace(t *testing.T) {
	t.Parallel()
	began := time.Now()
	w := run(t, "hungry", burner{harness.Container{CPU: "30m", Memory: "64Mi", CPULimit: "300m", MemoryLimit: "128Mi"}, "150m", "30Mi"})
	control(t, w, vpav1.UpdateModeInPlaceOrRecreate)
	before := awaitRunning(t, w)
	took(t, "hungry: container runs", began)
	eventually(t, 10*time.Second, "the sizes it was created with are in force", func() error { return checkApplied(before) })
	eventually(t, longestWait, "the metrics API shows what it really uses", func() error {
		usage, err := cluster.Usage.MetricsV1beta1().PodMetricses(w.Namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		// A busy machine may give it less CPU than it needs, and more for a moment.
		if used := usage.Containers[0].Usage; used.Cpu().MilliValue() <= 60 || used.Cpu().MilliValue() > 200 || used.Memory().Value() < 30<<20 || used.Memory().Value() > 64<<20 {
			return fmt.Errorf("usage is %v: want about 150m and 30Mi", used)
		}
		return nil
	})
	took(t, "hungry: usage in the metrics API", began)
	after := resized(t, w, before, grown(before))
	took(t, "hungry: grown in place, in force in the cgroup", began)
	cpu := after.Spec.Containers[0].Resources
	require.Equal(t, 10*cpu.Requests.Cpu().MilliValue(), cpu.Limits.Cpu().MilliValue(), "the limit keeps its proportion to the request")
}

func testIdlePodShrinksInPlace(t *testing.T) {
	t.Parallel()
	began := time.Now()
	w := run(t, "idle", burner{harness.Container{CPU: "400m", Memory: "200Mi", CPULimit: "800m", MemoryLimit: "400Mi"}, "10m", "20Mi"})
	control(t, w, vpav1.UpdateModeInPlaceOrRecreate)
	before := awaitRunning(t, w)
	resized(t, w, before, func(pod *corev1.Pod) error {
		if cpu, memory := request(pod, corev1.ResourceCPU), request(pod, corev1.ResourceMemory); cpu.MilliValue() > 100 || memory.Value() > 100<<20 {
			return fmt.Errorf("requests %s of cpu and %s of memory", cpu.String(), memory.String())
		}
		return nil
	})
	took(t, "idle: shrunk in place, in force in the cgroup", began)
}

func testOOMKilledPodRecovers(t *testing.T) {
	t.Parallel()
	began := time.Now()
	const needs = 100 << 20
	w := run(t, "killed", burner{harness.Container{CPU: "20m", Memory: "50Mi", MemoryLimit: "50Mi"}, "10m", "20Mi:8s,100Mi"})
	control(t, w, vpav1.UpdateModeInPlaceOrRecreate)
	before := awaitRunning(t, w)
	eventually(t, longestWait, "the kernel kills it for its memory", func() error {
		pod, err := onlyPod(t.Context(), w)
		if err != nil {
			return err
		}
		for _, state := range []corev1.ContainerState{pod.Status.ContainerStatuses[0].State, pod.Status.ContainerStatuses[0].LastTerminationState} {
			if state.Terminated != nil && state.Terminated.Reason == "OOMKilled" && state.Terminated.ExitCode == 137 {
				return nil
			}
		}
		return fmt.Errorf("its state is %+v", pod.Status.ContainerStatuses[0])
	})
	killed := time.Now()
	took(t, "killed: first out-of-memory kill", began)
	var pod *corev1.Pod
	eventually(t, longestWait, "it has more memory", func() (err error) {
		if pod, err = onlyPod(t.Context(), w); err != nil {
			return err
		}
		if limit := pod.Spec.Containers[0].Resources.Limits.Memory(); limit.Value() <= needs {
			return fmt.Errorf("its memory limit is %s after %d restarts", limit, restarts(pod))
		}
		return nil
	})
	took(t, "killed: more memory asked for, since the kill", killed)
	eventually(t, longestWait, "it has the memory it needs, in force", func() (err error) {
		if pod, err = onlyPod(t.Context(), w); err != nil {
			return err
		}
		if err := checkApplied(pod); err != nil {
			return err
		}
		if kernel, err := readEnforced(pod); err != nil || kernel.occupied < needs {
			return fmt.Errorf("it occupies %d bytes: %w", kernel.occupied, err)
		}
		return nil
	})
	took(t, "killed: lives with what it needs, since the kill", killed)
	require.Equal(t, before.UID, pod.UID, "the pod was replaced")
	alive := restarts(pod)
	during(t, 10*time.Second, "it is killed no more", func() error {
		pod, err := onlyPod(t.Context(), w)
		if err == nil && restarts(pod) != alive {
			err = fmt.Errorf("restarted %d times, was %d", restarts(pod), alive)
		}
		return err
	})
}

// The recommendation is capped below the memory usage of the container. With such a limit the
// kernel would kill it.
func testKeepsLimitAboveMemoryUsage(t *testing.T, name string, mode vpav1.UpdateMode) {
	t.Parallel()
	const much, release = 120 << 20, 90 * time.Second
	w := run(t, name, burner{harness.Container{CPU: "20m", Memory: "200Mi", MemoryLimit: "200Mi"}, "10m", "120Mi:" + release.String() + ",20Mi"})
	most := resource.MustParse("80Mi")
	before := awaitRunning(t, w)
	eventually(t, release, "it occupies its memory, which takes a while on a busy machine", func() error {
		kernel, err := readEnforced(before)
		if err == nil && kernel.occupied < much {
			err = fmt.Errorf("it occupies %d bytes", kernel.occupied)
		}
		return err
	})
	released := before.Status.ContainerStatuses[0].State.Running.StartedAt.Add(release)
	// An early sample shows less, and the updater keeps a limit of a tenth above the usage it
	// reads.
	eventually(t, time.Until(released), "the metrics API shows what it occupies, which the updater looks at", func() error {
		usage, err := cluster.Usage.MetricsV1beta1().PodMetricses(w.Namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
		if err == nil && usage.Containers[0].Usage.Memory().Value() < much {
			err = fmt.Errorf("it shows %s", usage.Containers[0].Usage.Memory())
		}
		return err
	})
	control(t, w, mode, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{
			ContainerName: "*", MaxAllowed: corev1.ResourceList{corev1.ResourceMemory: most},
		}}}
	})
	eventually(t, time.Until(released), "less than it uses is recommended", func() error {
		list, err := target(t.Context(), w)
		if err == nil && list.Memory().Cmp(most) > 0 {
			err = fmt.Errorf("the target is %s", list.Memory())
		}
		return err
	})
	// From here on the updater has several iterations in which it must not reduce the limit.
	recommended := time.Now()
	require.Greater(t, time.Until(released), 12*time.Second, "the recommendation came too late to show anything")
	during(t, time.Until(released)-2*time.Second, "memory in use is not taken", func() error {
		pod, err := onlyPod(t.Context(), w)
		if err != nil {
			return err
		}
		require.Equal(t, before.UID, pod.UID, "the pod was replaced")
		kernel, err := readEnforced(pod)
		if err == nil && (kernel.memory < much || restarts(pod) > 0) {
			err = fmt.Errorf("the limit in force is %d, it occupies %d, %d restarts", kernel.memory, kernel.occupied, restarts(pod))
		}
		return err
	})
	t.Logf("the limit held for %s", time.Since(recommended))
	resized(t, w, before, func(pod *corev1.Pod) error {
		if limit := pod.Spec.Containers[0].Resources.Limits.Memory(); limit.Cmp(most) > 0 {
			return fmt.Errorf("the memory limit is %s", limit)
		}
		return nil
	})
	took(t, name+": limit cut, since the memory was given back", released)
}
