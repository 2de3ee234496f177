package admission

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/kube/nodefit"
	"loadline.dev/loadline/pkg/testkit"
)

// cluster has a fixed set of nodes and counts the pods larger than every node.
type cluster struct {
	nodes    *nodefit.Nodes
	exceeded int
}

func (c *cluster) Nodes() *nodefit.Nodes { return c.nodes }
func (c *cluster) Exceeded()             { c.exceeded++ }

func TestPodHandler_CapsPodsToLargestMatchingNode(t *testing.T) {
	node := func(name, has string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": name}}, Status: corev1.NodeStatus{Allocatable: testkit.List(has)}}
	}
	known := nodefit.Summarize([]corev1.Node{node("small", "cpu=4 memory=16Gi"), node("large", "cpu=8 memory=32Gi")}, nil)
	always := corev1.ContainerRestartPolicyAlways
	for _, tc := range []struct {
		name, recommended string
		change            func(*corev1.Pod)
		nodes             *nodefit.Nodes
		memory, limit     string
		reported          bool
	}{
		{name: "larger than any node", recommended: "cpu=100m memory=80Gi", nodes: known, memory: "32Gi", reported: true},
		{name: "the limit follows", recommended: "cpu=100m memory=80Gi", nodes: known, memory: "32Gi", limit: "64Gi", reported: true,
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = testkit.List("memory=512Mi") }},
		{name: "beside a sidecar", recommended: "cpu=100m memory=80Gi", nodes: known, memory: "31Gi", reported: true, change: func(p *corev1.Pod) {
			sidecar := testkit.Container("side", "memory=1Gi", "")
			sidecar.RestartPolicy = &always
			p.Spec.InitContainers = []corev1.Container{sidecar}
		}},
		{name: "a node selector", recommended: "cpu=100m memory=20Gi", nodes: known, memory: "16Gi", reported: true,
			change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": "small"} }},
		{name: "as large as a node", recommended: "cpu=100m memory=20Gi", nodes: known, memory: "20Gi"},
		{name: "larger ones may be added", recommended: "cpu=100m memory=80Gi", memory: "80Gi"},
		{name: "too long to read its placement", recommended: "cpu=100m memory=80Gi", nodes: known, memory: "80Gi",
			change: func(p *corev1.Pod) { p.Spec.Tolerations = make([]corev1.Toleration, 128<<10/3) }},
		{name: "written larger", recommended: "cpu=100m memory=80Gi", nodes: known, memory: "40Gi", reported: true,
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = testkit.List("memory=40Gi") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := testkit.Pod("p", testkit.Container("c", "cpu=100m memory=256Mi", ""))
			if tc.change != nil {
				tc.change(pod)
			}
			has := &cluster{nodes: tc.nodes}
			h := handlerOf(t, fakeFinder{vpa: testkit.VPA("v", testkit.Recommend("c", tc.recommended))})
			h.nodes = has
			answer := h.answer(t.Context(), podRequest(t, pod))
			require.NoError(t, answer.Err)
			patch, err := json.Marshal(answer.Patch)
			require.NoError(t, err)
			gets := func(list, want string) {
				for _, step := range answer.Patch {
					if text, ok := step.Value.(string); ok && step.Path == "/spec/containers/0/resources/"+list+"/memory" {
						got, most := resource.MustParse(text), resource.MustParse(want)
						require.LessOrEqual(t, got.Value(), most.Value(), list)
						require.Greater(t, got.Value(), most.Value()/1000*999, list)
						return
					}
				}
				require.Fail(t, "nothing is written", list)
			}
			gets("requests", tc.memory)
			if tc.limit != "" {
				gets("limits", tc.limit)
			}
			require.Equal(t, tc.reported, strings.Contains(strings.Join(answer.Warnings, "\n"), "no node that the pod can go to can hold"))
			require.Equal(t, tc.reported, has.exceeded > 0, "the nodes are read again")
			require.Equal(t, tc.reported && tc.name != "written larger", strings.Contains(string(patch), "memory capped to the largest node"), convert.UpdatesAnnotation)
		})
	}
}
