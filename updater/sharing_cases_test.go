package updater

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

func TestShare_NoSharingPods(t *testing.T) {
	alone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "alone", UID: "alone"}, Spec: corev1.PodSpec{NodeName: "n1",
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list("1", "1Gi")}}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for name, objects := range map[string][]runtime.Object{
		"no pod at all":            nil,
		"one that nobody sizes":    {alone},
		"a workload without pods":  append(peakingPods(0, nil), peakingVPA()),
		"nothing recommended":      append(peakingPods(3, unlimited), vpaWithoutRecommendation()),
		"a node that has only GPU": append(peakingPods(3, unlimited), peakingVPA(), kubelet("n1", "8", withGPU)),
	} {
		r := shareWith(t, Default(), append(objects, sharingOnPolicy())...)
		before := r.sizes()
		for minute := range 12 {
			require.Equal(t, before, r.runAt(time.Duration(minute)*time.Minute), name)
		}
		require.Equal(t, "True Shares: pods that share: 0", r.condition(), name)
		for _, a := range r.kube.Actions() {
			require.False(t, a.GetResource().Resource == "pods" && (a.GetVerb() == "patch" || a.GetVerb() == "create"), "%s: %v", name, a)
		}
	}
}

// A resize that does not fit with the bases, or a pod that the kubelet will refuse, takes nothing from
// the sharing pods.
func TestShare_IgnoresRequestsThatNodeNeverGrants(t *testing.T) {
	stray := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "mine", Name: "stray", UID: "stray"}, Spec: corev1.PodSpec{NodeName: "n1",
			Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: list("6", "1Mi")}}}}}
		p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &metav1.Time{Time: noon}
		change(p)
		return p
	}
	resizing := func(cpu, reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list(cpu, "1Mi")
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &corev1.ResourceRequirements{Requests: list("10m", "1Mi")}}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason}}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   string
	}{
		{name: "running pod", change: func(*corev1.Pod) {}, want: "666m 666m 666m"},
		{name: "deferred resize that fits beside the bases", change: resizing("6", corev1.PodReasonDeferred), want: "666m 666m 666m"},
		{name: "deferred resize that does not fit", change: resizing("7", corev1.PodReasonDeferred), want: "800m 800m 800m"},
		{name: "infeasible resize", change: resizing("9", corev1.PodReasonInfeasible), want: "800m 800m 800m"},
		{name: "pending pod on a full node", change: func(p *corev1.Pod) { p.Status.Phase, p.Status.StartTime = corev1.PodPending, nil },
			want: "800m 800m 800m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newSharing(t, 3, sharingOnPolicy(), stray(tc.change))
			r.runAt(0)
			require.Equal(t, tc.want, r.runAt(5*time.Minute))
		})
	}
}

func withGPU(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = list("1", "1")["cpu"] }

func vpaWithoutRecommendation() runtime.Object {
	vpa := peakingVPA()
	vpa.Status.Recommendation = nil
	return vpa
}

// A UID precondition makes the API server refuse a write for a new pod with the same name.
func TestShare_WritesTestPodUID(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy())
	writes := func() (bodies []string) {
		for _, a := range r.kube.Actions() {
			if patch, is := a.(kubetesting.PatchAction); is && a.GetResource().Resource == "pods" {
				bodies = append(bodies, string(patch.GetPatch()))
				require.Contains(t, string(patch.GetPatch()), `"uid-`+strings.TrimPrefix(patch.GetName(), "web-1-")+`"`, string(patch.GetPatch()))
			}
		}
		r.kube.ClearActions()
		return bodies
	}
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	require.Len(t, writes(), 6, "a mark and a resize for each")
	r.edit(sharingOff)
	r.runAt(5 * time.Minute)
	require.Equal(t, "1400m 1400m 1400m", r.runAt(6*time.Minute))
	r.runAt(7 * time.Minute)
	require.Len(t, writes(), 6, "a resize, and the mark goes")
}

func TestShare_LogsUnusableNode(t *testing.T) {
	for _, tc := range []struct {
		name    string
		problem string
		change  func(*corev1.Node)
	}{
		{name: "kubelet without resizes in place", problem: "KubeletTooOld",
			change: func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.32.9" }},
		{name: "unknown allocatable resources", problem: "AllocatableUnknown", change: func(n *corev1.Node) { n.Status.Allocatable = nil }},
		{name: "virtual node", problem: "SizeFollowsPods",
			change: func(n *corev1.Node) { n.Labels = map[string]string{"type": "virtual-kubelet"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, mode := range []loadlinev1alpha1.SharingMode{loadlinev1alpha1.SharingOn, loadlinev1alpha1.SharingDryRun} {
				objects := append(peakingPods(3, unlimited), peakingVPA(), sharingPolicy(mode, automatic))
				w := newWorld(t, Default(), append(objects, kubelet("n1", "8", tc.change))...)
				lines := w.sharingLogs(noon)
				require.Contains(t, lines[0], "Sharing, dry run[node n1 pods 3", "it acts as DryRun")
				require.Contains(t, lines[0], "problem "+tc.problem)
			}
		})
	}
}
