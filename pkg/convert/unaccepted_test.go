package convert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/resources"
)

// The request of a pod beyond its grant is pending, unless the resize is infeasible.
func TestUngrantedResources_PendingResize(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	pod := func(condition corev1.PodConditionType, has *corev1.ResourceRequirements) *corev1.Pod {
		return &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: list("9", "1Mi")}}, {Name: "b", Resources: corev1.ResourceRequirements{Requests: list("1", "1Mi")}}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: condition, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "a", Resources: has}}},
		}
	}
	has := &corev1.ResourceRequirements{Requests: list("2", "3Mi")}
	require.Equal(t, resources.List{}.With(resources.CPU, 7000), UngrantedResources(pod(corev1.PodResizePending, has)))
	require.Equal(t, resources.List{}, UngrantedResources(pod(corev1.PodResizePending, nil)), "nobody knows what it has")
	require.Equal(t, resources.List{}, UngrantedResources(pod(corev1.PodResizeInProgress, has)), "it is granted")
	never := pod(corev1.PodResizePending, has)
	never.Status.Conditions[0].Reason = corev1.PodReasonInfeasible
	require.Equal(t, resources.List{}, UngrantedResources(never))
}

func TestAdmitted_AcceptsPodsThatFit(t *testing.T) {
	cpu := func(uid string, takes resources.Amount) Arrival {
		return Arrival{UID: types.UID(uid), Requests: resources.List{}.With(resources.CPU, takes)}
	}
	for _, tc := range []struct {
		name     string
		left     resources.Amount
		arrivals []Arrival
		want     []string
	}{
		{name: "all pods fit", left: 300, arrivals: []Arrival{cpu("b", 100), cpu("a", 200)}, want: []string{"a", "b"}},
		{
			name: "smaller pod after one that does not fit", left: 300, arrivals: []Arrival{cpu("c", 100), cpu("a", 200), cpu("b", 200)},
			want: []string{"a", "c"},
		},
		{name: "pod larger than the node", left: 300, arrivals: []Arrival{cpu("a", 9000), cpu("b", 300)}, want: []string{"b"}},
		{name: "no CPU left", left: -50, arrivals: []Arrival{cpu("a", 1), cpu("b", 0)}, want: []string{"b"}},
		{name: "order of arrivals does not matter", left: 300, arrivals: []Arrival{cpu("b", 200), cpu("a", 200)}, want: []string{"a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, a := range Admitted(resources.List{}.With(resources.CPU, tc.left), tc.arrivals) {
				got = append(got, string(a.UID))
			}
			require.Equal(t, tc.want, got)
		})
	}
	old := cpu("b", 200)
	old.Created = old.Created.Add(-time.Hour)
	require.Equal(t, []Arrival{old}, Admitted(resources.List{}.With(resources.CPU, 300), []Arrival{cpu("a", 200), old}), "the oldest is taken first")
	require.Len(t, Admitted(resources.List{}, []Arrival{cpu("a", 1)}), 1, "nobody knows what the node has")
}
