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

func guaranteedWorkload(t *testing.T, name, node string) harness.Workload {
	t.Helper()
	w := newWorkload(t, name, 2)
	w.Containers[0].CPULimit, w.Containers[0].MemoryLimit = w.Containers[0].CPU, w.Containers[0].Memory
	w.Node, w.Tolerate = node, ownTaint
	return w
}

func requireNoResize(t *testing.T, w harness.Workload) {
	t.Helper()
	out, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "events", "--field-selector=reason=InPlaceResizedByVPA", "-o=jsonpath={.items[*].message}")
	require.NoError(t, err)
	require.Empty(t, out, "a resize was asked for that its node refuses")
}

// Labeled nodes cannot change the CPU of Guaranteed pods: mode InPlace skips these pods, and
// InPlaceOrRecreate evicts them at once.
func TestStaticCPU_DetectedByNodeLabel(t *testing.T) {
	parallelTest(t)
	ownNode(t, "static-cpu", func(n *corev1.Node) { n.Labels["cpumanager"] = "true" })
	left := guaranteedWorkload(t, "static-cpu-left", "static-cpu")
	before := startWorkload(t, left)
	moved := guaranteedWorkload(t, "static-cpu-moved", "static-cpu")
	old := startWorkload(t, moved)
	createVPAWithTarget(t, left, vpav1.UpdateModeInPlace, larger)
	createVPAWithTarget(t, moved, vpav1.UpdateModeInPlaceOrRecreate, resourceList("200m", "200Mi"))
	awaitReplaced(t, longestWait, moved, old)
	awaitSized(t, moved, "200m")
	awaitSkipped(t, left.Namespace, "StaticCPU")
	requireUnchanged(t, left, before)
	requireNoResize(t, left)
	requireNoResize(t, moved)
}

func TestStaticCPU_DetectedByInfeasibleResize(t *testing.T) {
	parallelTest(t)
	ownNode(t, "static-cpu-learned")
	first := guaranteedWorkload(t, "static-cpu-first", "static-cpu-learned")
	first.Annotations = harness.With(first.Annotations, harness.ResizeAnnotation, "infeasible")
	startWorkload(t, first)
	createVPAWithTarget(t, first, vpav1.UpdateModeInPlace, larger)
	awaitSkipped(t, first.Namespace, "Infeasible")
	eventually(t, "the node says why, in the words of a kubelet", func() error {
		for _, pod := range pods(t, first) {
			for i, c := range pod.Status.Conditions {
				if c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible {
					pod.Status.Conditions[i].Message = `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
					_, err := cluster.Kube.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
					return err
				}
			}
		}
		return fmt.Errorf("no pod was refused")
	})
	during(t, 4*time.Second, func() {})              // until the updater's informer has it
	setTarget(t, first, resourceList("50m", "60Mi")) // a smaller target would be tried again
	awaitSkipped(t, first.Namespace, "StaticCPU")
	next := guaranteedWorkload(t, "static-cpu-next", "static-cpu-learned")
	before := startWorkload(t, next)
	createVPAWithTarget(t, next, vpav1.UpdateModeInPlace, larger)
	awaitSkipped(t, next.Namespace, "StaticCPU")
	requireUnchanged(t, next, before)
	requireNoResize(t, next)
}
