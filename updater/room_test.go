package updater

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/updater/actuate"
)

// With node autoscaling an evicted pod gets a new node, as with the reference VPA. Otherwise it
// might stay pending.
func TestEvictionRoom_WaitsUnlessNodesAreAutoscaled(t *testing.T) {
	status := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}
	added, fixed := node("n1", "150m"), node("n1", "150m")
	added.Labels = map[string]string{"karpenter.sh/nodepool": "default"}
	fixed.Labels = map[string]string{"cloud.google.com/gke-nodepool": "default"}
	virtual, single := node("n1", "150m"), node("n1", "150m")
	virtual.Spec.Taints = []corev1.Taint{{Key: "virtual-kubelet.io/provider", Effect: corev1.TaintEffectNoSchedule}}
	single.Labels = map[string]string{"eks.amazonaws.com/compute-type": "fargate"}
	for _, tc := range []struct {
		name    string
		room    string
		objects []runtime.Object
		evicts  bool
		message string
	}{
		{name: "no autoscaler detected", room: roomAuto, objects: []runtime.Object{node("n1", "150m")}, evicts: false,
			message: "evictions wait for a node with free capacity, because no node autoscaler was detected"},
		{name: "virtual node", room: roomSize, objects: []runtime.Object{virtual}, evicts: true},
		{name: "node of a single pod", room: roomSize, objects: []runtime.Object{single}, evicts: true},
		{name: "managed node pool", room: roomAuto, objects: []runtime.Object{fixed}, evicts: false, message: "evictions wait"},
		{name: "cluster-autoscaler", room: roomAuto, objects: []runtime.Object{node("n1", "150m"), status}, evicts: true,
			message: "evictions do not wait for node capacity, " +
				"because a node autoscaler was detected: ConfigMap kube-system/cluster-autoscaler-status"},
		{name: "Karpenter", room: roomAuto, objects: []runtime.Object{added}, evicts: true,
			message: "label karpenter.sh/nodepool of most nodes"},
		{name: "one node with a label of Karpenter", room: roomAuto, objects: []runtime.Object{added, node("n2", "150m")}, evicts: false,
			message: "evictions wait for a node with free capacity, because no node autoscaler was detected"},
		{name: "free capacity by flag", room: roomFree, objects: []runtime.Object{added, status}, evicts: false},
		{name: "node size by flag", room: roomSize, objects: []runtime.Object{added, status}, evicts: false},
		{name: "no check by flag", room: roomOff, objects: []runtime.Object{node("n1", "150m")}, evicts: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := Default()
			config.EvictionRoom = tc.room
			w := newWorld(t, config, append(web(vpav1.UpdateModeRecreate, 2), tc.objects...)...)
			w.caches.constraints.WaitForCacheSync(t.Context().Done())
			var out strings.Builder
			w.loop.setExecutor(&actuate.DryRun{Out: &out})
			w.runOnce(noon)
			w.runOnce(noon.Add(time.Hour))
			require.Equal(t, tc.evicts, strings.Contains(out.String(), "would evict pod"), out.String())
			require.Contains(t, out.String(), tc.message)
			require.Equal(t, tc.message != "", strings.Contains(out.String(), "evictions "))
			require.LessOrEqual(t, strings.Count(out.String(), "evictions "), 1, "once")
			require.Equal(t, !tc.evicts, w.value("loadline_updater_skipped_pods", "reason", reason.TooLargeForNode.String()) > 0)
		})
	}
}

func TestEvictionRoom_DetectsAutoscalerLater(t *testing.T) {
	w := newWorld(t, Default(), append(web(vpav1.UpdateModeRecreate, 2), node("n1", "150m"))...)
	w.caches.constraints.WaitForCacheSync(t.Context().Done())
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.NoError(t, w.kube.Tracker().Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}))
	w.runOnce(noon.Add(time.Minute))
	require.Empty(t, w.evictions(), "it is not looked for in each pass")
	w.runOnce(noon.Add(5 * time.Minute))
	require.Equal(t, []string{"web-1-0"}, w.evictions())
}

// Node autoscaling adds no room on existing nodes.
func TestResize_FitsNodeDespiteAutoscaling(t *testing.T) {
	status := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}
	plan := func(config *Config, change func(*corev1.Pod)) string {
		w := newWorld(t, config, append(append(deployment(2, change), autoscaler(vpav1.UpdateModeInPlaceOrRecreate)), status, node("n1", "250m"))...)
		w.caches.constraints.WaitForCacheSync(t.Context().Done())
		var out strings.Builder
		w.loop.setExecutor(&actuate.DryRun{Out: &out})
		w.runOnce(noon)
		return out.String()
	}
	config := Default()
	require.Contains(t, plan(config, nil), "cpu 100m -> 200m", "the node gives it as soon as there is room")
	require.NotContains(t, plan(config, restartsForMemory), "would resize", "a restart would come when nobody looks at budgets any more")
	config.Disruption.CapToRoom = true
	require.Contains(t, plan(config, nil), "cpu 100m -> 150m")
}
