package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// ownTaint keeps pods of other tests off a test's own node.
const ownTaint = "sim.loadline.dev/own"

// ownNode adds a simulated node of one core for the pods of one test.
func ownNode(t *testing.T, name string, change ...func(*corev1.Node)) {
	t.Helper()
	nodes := cluster.Kube.CoreV1().Nodes()
	pattern, err := nodes.Get(t.Context(), "node-1", metav1.GetOptions{})
	require.NoError(t, err)
	size := pattern.Status.Capacity.DeepCopy()
	size[corev1.ResourceCPU] = *quantity("1")
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", ownTaint: "true"},
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake",
				"metrics.k8s.io/resource-metrics-path": "/metrics/nodes/" + name + "/metrics/resource"}},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: size, Allocatable: size, NodeInfo: pattern.Status.NodeInfo},
	}
	for _, f := range change {
		f(node)
	}
	_, err = nodes.Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
}

func onCommonNodes(template *corev1.PodTemplateSpec) {
	template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: ownTaint, Operator: corev1.NodeSelectorOpDoesNotExist}}}},
	}}}
}

// startOnFullNode runs two pods on their own node, next to one that takes nearly all remaining
// room, and sets a larger target than fits.
func startOnFullNode(t *testing.T, name string, mode vpav1.UpdateMode) (w harness.Workload, before []corev1.Pod) {
	t.Helper()
	ownNode(t, name)
	w = newWorkload(t, name, 2)
	w.Node, w.Tolerate = name, ownTaint
	w.Annotations = harness.With(w.Annotations, harness.ResizeAnnotation, "defer") // as a kubelet reports that there is no room
	before = startWorkload(t, w)
	ballast := w
	ballast.Name, ballast.Replicas = "ballast", 1
	ballast.Containers = []harness.Container{{Name: "app", CPU: "700m", Memory: "100Mi"}}
	startWorkload(t, ballast)
	createVPAWithTarget(t, w, mode, larger)
	return w, before
}

// makeRoom deletes the ballast of the node, which then applies deferred resizes.
func makeRoom(t *testing.T, w harness.Workload) {
	t.Helper()
	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "delete", "deployment", "ballast"))
	for _, pod := range pods(t, w) { // not all pods: the ballast pod is terminating
		require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "annotate", "pod", pod.Name, harness.ResizeAnnotation+"-"))
	}
}

func requireGrownInPlace(t *testing.T, w harness.Workload, before []corev1.Pod) {
	t.Helper()
	awaitSized(t, w, "300m")
	for i, pod := range pods(t, w) {
		require.Equal(t, before[i].UID, pod.UID, "a pod was replaced")
		require.Zero(t, restarts(&pod))
	}
}

// The pods of a full node are resized once, deferred and then skipped. As soon as there is room,
// the node applies the resizes in place.
func TestNodeFull_ResizesOnceThereIsRoom(t *testing.T) {
	parallelTest(t)
	w, before := startOnFullNode(t, "node-full", vpav1.UpdateModeInPlaceOrRecreate)
	awaitSkipped(t, w.Namespace, "Deferred")
	eventually(t, "both pods were asked", func() error {
		for _, pod := range pods(t, w) {
			if has := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); has != "300m" {
				return fmt.Errorf("pod %s has %s", pod.Name, has)
			}
		}
		return nil
	})
	for i, pod := range pods(t, w) {
		require.Equal(t, before[i].UID, pod.UID, "a pod was replaced")
	}
	makeRoom(t, w)
	requireGrownInPlace(t, w, before)
}

// The event follows after --skip-event-after.
func TestNodeFull_EmitsOneEventOnVPA(t *testing.T) {
	parallelTest(t)
	w, before := fullNodeScenario.begun(t)
	events := func() []string {
		out, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "events",
			"--field-selector=reason=Deferred,involvedObject.kind=VerticalPodAutoscaler,involvedObject.name="+w.Name, "-o=jsonpath={range .items[*]}{.message}{\"\\n\"}{end}")
		require.NoError(t, err)
		return strings.Fields(strings.ReplaceAll(strings.TrimSpace(out), " ", "_"))
	}
	if time.Since(fullNodeScenario.since) < eventAfter-time.Minute {
		require.Empty(t, events(), "it may pass")
	}
	within(t, eventAfter+longestWait, "an event on the VPA", func() error {
		if len(events()) == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	for i, pod := range pods(t, w) {
		require.Equal(t, before[i].UID, pod.UID, "a pod was replaced")
	}
	told := events()
	require.Len(t, told, 1, "it is told once")
	require.Contains(t, told[0], "Skipped_pods:_2")
	makeRoom(t, w)
	requireGrownInPlace(t, w, before)
}
