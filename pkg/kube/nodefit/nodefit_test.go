package nodefit

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/resources"
)

const gib = 1 << 30

func sized(name, cpu, memory string, change ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}
	for _, c := range change {
		c(&n)
	}
	return n
}

func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func tainted(key string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
}

func required(terms ...corev1.NodeSelectorTerm) Placement {
	return Placement{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}}
}

func expression(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

func TestLargest_VirtualNodesAreUnbounded(t *testing.T) {
	tolerating := Placement{Tolerations: []corev1.Toleration{{Key: "virtual-kubelet.io/provider", Operator: corev1.TolerationOpExists}}}
	virtual := sized("virtual", "4", "8Gi", labelled("type", "virtual-kubelet"), tainted("virtual-kubelet.io/provider"))
	single := sized("single", "64", "256Gi", labelled("eks.amazonaws.com/compute-type", "fargate"))
	plain := sized("plain", "4", "32Gi")
	lying := sized("lying", "4", "8Gi", labelled("type", "virtual-kubelet"))
	for _, tc := range []struct {
		name  string
		nodes []corev1.Node
		p     Placement
		want  resources.Amount // GiB, 0 for unbounded
	}{
		{name: "one node of several with the label of virtual nodes", nodes: []corev1.Node{lying, plain, plain}, want: 32},
		{name: "one node of several with label and taint, and a pod that tolerates any taint", nodes: []corev1.Node{virtual, plain, plain},
			p: Placement{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}, want: 32},
		{name: "pod on the node with the label", nodes: []corev1.Node{lying, plain, plain}, p: Placement{NodeName: "lying"}},
		{name: "pod that selects virtual nodes", nodes: []corev1.Node{lying, plain, plain}, p: Placement{NodeSelector: map[string]string{"type": "virtual-kubelet"}}},
		{name: "virtual nodes without a taint", nodes: []corev1.Node{lying, lying, plain}},
		{name: "virtual node that the pod can go to", nodes: []corev1.Node{virtual, plain}, p: tolerating},
		{name: "virtual node with a taint", nodes: []corev1.Node{virtual, plain}, want: 32},
		{name: "virtual nodes alone", nodes: []corev1.Node{virtual}},
		{name: "node of another pod", nodes: []corev1.Node{single, plain}, want: 32},
		{name: "pod that gets a node of its own", nodes: []corev1.Node{single, plain}, p: Placement{Scheduler: "fargate-scheduler"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			room, tooLarge := Summarize(tc.nodes, nil).Largest(resources.NewList(100, 40*gib), &tc.p, func(_, _ string) bool { return false })
			require.Equal(t, tc.want > 0, tooLarge)
			require.Equal(t, tc.want*gib, room.Value(resources.Memory))
		})
	}
}

func TestLargest_OnlyNodesThatPodCanRunOn(t *testing.T) {
	n := Summarize([]corev1.Node{
		sized("small", "4", "8Gi", labelled("pool", "small")),
		sized("middle", "8", "32Gi", labelled("pool", "middle"), labelled("generation", "5")),
		sized("gpu", "64", "256Gi", labelled("pool", "gpu"), tainted("example.com/gpu")),
		sized("cordoned", "8", "64Gi", labelled("pool", "spare"), tainted("node.kubernetes.io/unschedulable")),
	}, []DaemonSet{
		{Namespace: "kube-system", Name: "proxy", Requests: resources.NewList(100, gib), Placement: Placement{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}},
		{Namespace: "kube-system", Name: "driver", Requests: resources.NewList(100, gib), Placement: Placement{NodeSelector: map[string]string{"pool": "middle"}}},
	})
	for _, tc := range []struct {
		name   string
		memory resources.Amount // GiB
		p      Placement
		own    string
		want   resources.Amount // GiB, 0 if some node is large enough
	}{
		{name: "small enough for all", memory: 7},
		{name: "beside the DaemonSets", memory: 8, p: Placement{NodeSelector: map[string]string{"pool": "small"}}, want: 7},
		{name: "on a node that is cordoned for now", memory: 63},
		{name: "too large for all without a taint", memory: 80, want: 63},
		{name: "a tolerated taint", memory: 80, p: Placement{Tolerations: []corev1.Toleration{{Key: "example.com/gpu", Operator: corev1.TolerationOpExists}}}},
		{name: "another toleration", memory: 80, p: Placement{Tolerations: []corev1.Toleration{{Key: "example.com/other", Operator: corev1.TolerationOpExists}}}, want: 63},
		{name: "a node selector", memory: 40, p: Placement{NodeSelector: map[string]string{"pool": "middle"}}, want: 30},
		{name: "affinity", memory: 40, p: required(expression("pool", corev1.NodeSelectorOpIn, "small", "middle")), want: 30},
		{name: "one of two terms", memory: 40, p: required(expression("pool", corev1.NodeSelectorOpIn, "middle"), expression("pool", corev1.NodeSelectorOpIn, "spare"))},
		{name: "NotIn", memory: 40, p: required(expression("pool", corev1.NodeSelectorOpNotIn, "spare")), want: 30},
		{name: "Exists", memory: 40, p: required(expression("generation", corev1.NodeSelectorOpExists)), want: 30},
		{name: "DoesNotExist", memory: 70, p: required(expression("generation", corev1.NodeSelectorOpDoesNotExist)), want: 63},
		{name: "Gt", memory: 40, p: required(expression("generation", corev1.NodeSelectorOpGt, "4")), want: 30},
		{name: "an operator that is not known", memory: 40, p: required(expression("pool", "Like", "m*"))},
		{name: "the pod of a DaemonSet", memory: 9, own: "proxy",
			p: required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"small"}}}}), want: 8},
		{name: "no node at all", memory: 40, p: Placement{NodeSelector: map[string]string{"pool": "new"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			room, tooLarge := n.Largest(resources.NewList(100, tc.memory*gib), &tc.p, func(_, name string) bool { return name == tc.own })
			require.Equal(t, tc.want > 0, tooLarge)
			require.Equal(t, tc.want*gib, room.Value(resources.Memory))
		})
	}
	_, tooLarge := new(Nodes).Largest(resources.NewList(100, gib), &Placement{}, nil)
	require.False(t, tooLarge, "nothing is known of nodes")
}

// If only some nodes were kept, a pod could be capped to these.
func TestSummarize_TooManyNodesAreUnbounded(t *testing.T) {
	all := make([]corev1.Node, maxNodes+1)
	for i := range all {
		all[i] = corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Gi")}}}
	}
	mine := func(string, string) bool { return false }
	_, tooLarge := Summarize(all, nil).Largest(resources.NewList(0, 80<<30), &Placement{}, mine)
	require.False(t, tooLarge)
	_, tooLarge = Summarize(all[:maxNodes], nil).Largest(resources.NewList(0, 80<<30), &Placement{}, mine)
	require.True(t, tooLarge)
}
