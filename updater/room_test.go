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
	for name, c := range map[string]struct {
		room    string
		objects []runtime.Object
		evicts  bool
		says    string
	}{
		"nothing shows it": {roomAuto, []runtime.Object{node("n1", "150m")}, false, "evictions wait for a node with free capacity, because no node autoscaler was detected"},
		"a virtual node":   {roomSize, []runtime.Object{virtual}, true, ""},
		"a node of a pod":  {roomSize, []runtime.Object{single}, true, ""},
		"a managed pool":   {roomAuto, []runtime.Object{fixed}, false, "evictions wait"},
		"an autoscaler":    {roomAuto, []runtime.Object{node("n1", "150m"), status}, true, "evictions do not wait for node capacity, because a node autoscaler was detected: ConfigMap kube-system/cluster-autoscaler-status"},
		"Karpenter":        {roomAuto, []runtime.Object{added}, true, "label karpenter.sh/nodepool of most nodes"},
		"a node that labels itself": {roomAuto, []runtime.Object{added, node("n2", "150m")}, false,
			"evictions wait for a node with free capacity, because no node autoscaler was detected"},
		"somebody said so": {roomFree, []runtime.Object{added, status}, false, ""},
		"or how much":      {roomSize, []runtime.Object{added, status}, false, ""},
		"or not to ask":    {roomOff, []runtime.Object{node("n1", "150m")}, true, ""},
	} {
		config := Default()
		config.EvictionRoom = c.room
		w := newWorld(t, config, append(web(vpav1.UpdateModeRecreate, 2), c.objects...)...)
		w.caches.constraints.WaitForCacheSync(t.Context().Done())
		var out strings.Builder
		w.loop.setExecutor(&actuate.DryRun{Out: &out})
		w.runOnce(noon)
		w.runOnce(noon.Add(time.Hour))
		require.Equal(t, c.evicts, strings.Contains(out.String(), "would evict pod"), "%s: %s", name, out.String())
		require.Contains(t, out.String(), c.says, name)
		require.Equal(t, c.says != "", strings.Contains(out.String(), "evictions "), name)
		require.LessOrEqual(t, strings.Count(out.String(), "evictions "), 1, "%s: once", name)
		require.Equal(t, !c.evicts, w.value("loadline_updater_skipped_pods", "reason", reason.TooLargeForNode.String()) > 0, name)
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
