package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// deferredTime is the maximum deferral of a resize before mode InPlaceOrRecreate evicts.
const deferredTime = 5 * time.Minute

// Two pods need more on a full node, so the kubelet defers their resizes. One VPA may evict after a
// while, the other never.
func testFullNodeFollowsUpdateMode(t *testing.T) {
	// The room of the evicted pod is not enough for the other.
	small := burner{harness.Container{CPU: "10m", Memory: "50Mi", MemoryLimit: "100Mi"}, "200m", "20Mi"}
	ballast := run(t, "ballast", burner{Container: harness.Container{CPU: freeCPU(t, "-20m"), Memory: "20Mi"}})
	awaitRunning(t, ballast)
	evicting, staying := run(t, "evicting", small), run(t, "staying", small)
	control(t, evicting, vpav1.UpdateModeInPlaceOrRecreate)
	control(t, staying, vpav1.UpdateModeInPlace)
	first, second := awaitRunning(t, evicting), awaitRunning(t, staying)
	began := time.Now()
	for _, w := range []harness.Workload{evicting, staying} {
		eventually(t, longestWait, "the kubelet defers the resize of "+w.Name, func() error { return checkDeferred(t, w) })
	}
	took(t, "full: resizes deferred by the kubelet", began)
	during(t, 10*time.Second, "both wait", func() error {
		return errors.Join(checkUntouched(t, evicting, first), checkUntouched(t, staying, second))
	})

	var next *corev1.Pod
	eventually(t, 2*deferredTime, "the pod that may be evicted is, and comes back with the new size", func() (err error) {
		if next, err = onlyPod(t.Context(), evicting); err == nil && next.UID == first.UID {
			err = errors.New("it is still the same pod")
			ageDeferral(t, evicting, first)
		}
		return err
	})
	took(t, "full: evicted, since the resizes were asked for", began)
	require.NoError(t, grown(first)(next), "the webhook gives the new pod what was recommended")
	during(t, 12*time.Second, "the other pod stays", func() error {
		ageDeferral(t, staying, second)
		return checkUntouched(t, staying, second)
	})

	// With room on the node, the deferred resize is applied.
	room := time.Now()
	remove(t, ballast)
	resized(t, staying, second, grown(second))
	took(t, "full: deferred resize done, since there is room", room)
	eventually(t, longestWait, "the evicted pod runs", func() error {
		pod, err := onlyPod(t.Context(), evicting)
		if err != nil {
			return err
		}
		return checkApplied(pod)
	})
}

// grown checks that a pod requests more than twice the CPU of an earlier state.
func grown(before *corev1.Pod) func(pod *corev1.Pod) error {
	was := request(before, corev1.ResourceCPU)
	return func(pod *corev1.Pod) error {
		if cpu := request(pod, corev1.ResourceCPU); cpu.MilliValue() <= 2*was.MilliValue() {
			return fmt.Errorf("requests %s of cpu, was %s", cpu.String(), was.String())
		}
		return nil
	}
}

// freeCPU returns the unrequested CPU of the node plus the given quantity.
func freeCPU(t *testing.T, more string) string {
	t.Helper()
	node, err := cluster.Kube.CoreV1().Nodes().Get(t.Context(), realNode, metav1.GetOptions{})
	require.NoError(t, err)
	free := node.Status.Allocatable.Cpu().DeepCopy()
	pods, err := cluster.Kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + realNode})
	require.NoError(t, err)
	for _, pod := range pods.Items {
		free.Sub(request(&pod, corev1.ResourceCPU))
	}
	free.Add(resource.MustParse(more))
	return free.String()
}

func checkDeferred(t *testing.T, w harness.Workload) error {
	pod, err := onlyPod(t.Context(), w)
	if err != nil {
		return err
	}
	pending, found := resizing(pod, corev1.PodResizePending)
	if !found || pending.Reason != corev1.PodReasonDeferred {
		return fmt.Errorf("pod %s has the conditions %+v", pod.Name, pod.Status.Conditions)
	}
	return nil
}

// checkUntouched returns an error unless the pod was neither replaced nor restarted and runs with
// its old resources.
func checkUntouched(t *testing.T, w harness.Workload, before *corev1.Pod) error {
	pod, err := onlyPod(t.Context(), w)
	if err != nil {
		return err
	}
	if pod.UID != before.UID || restarts(pod) != restarts(before) {
		return fmt.Errorf("%s was replaced or restarted", w.Name)
	}
	kernel, err := readEnforced(pod)
	if err != nil {
		return err
	}
	return kernel.follows(before)
}

// patient is the variable that makes the test wait for the whole time.
const patient = "LOADLINE_NODE_PATIENT"

// ageDeferral makes a deferral older than the updater's limit by patching the pod condition, which
// the kubelet corrects within seconds. It does nothing if the variable is set.
func ageDeferral(t *testing.T, w harness.Workload, before *corev1.Pod) {
	t.Helper()
	if os.Getenv(patient) != "" {
		return
	}
	pod, err := onlyPod(t.Context(), w)
	if err != nil {
		return // evicted, the replacement is not there yet
	}
	pending, found := resizing(pod, corev1.PodResizePending)
	if pod.UID != before.UID || !found || time.Since(pending.LastTransitionTime.Time) > deferredTime {
		return // evicted, or the time has passed
	}
	pending.LastTransitionTime = metav1.NewTime(time.Now().Add(-deferredTime - time.Minute))
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{pending}}})
	require.NoError(t, err)
	_, err = cluster.Kube.CoreV1().Pods(w.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if !apierrors.IsNotFound(err) { // evicted
		require.NoError(t, err)
	}
}
