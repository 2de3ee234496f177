package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// The pod gets its base and a part of the remaining headroom.
func TestShareStay_BlockedEvictionGetsShare(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cpu    string // of the node
		want   string
		left   int    // pods that should leave
		reason string // skip reason
		change func(*loadlinev1alpha1.SizingPolicySpec)
	}{
		{name: "no room on another node", cpu: "2000m", want: "666m 666m 666m", left: 1, reason: "NodeFull",
			change: func(*loadlinev1alpha1.SizingPolicySpec) {}},
		{name: "bases exceed the node", cpu: "1400m", want: "500m 500m 500m", left: 2, reason: "NodeFull",
			change: func(*loadlinev1alpha1.SizingPolicySpec) {}},
		{name: "outside of the schedule", cpu: "2000m", want: "666m 666m 666m", left: 1, reason: "OutsideWindow",
			change: func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy(evicting, tc.change), kubelet("n1", tc.cpu))
			if tc.reason != "NodeFull" {
				objects = append(objects, kubelet("n2", "8"))
			}
			r := shareWith(t, Default(), objects...)
			r.runAt(0)
			require.EqualValues(t, tc.left, r.skipped(tc.reason))
			cpu := r.pod("web-1-0").Spec.Containers[0].Resources.Requests.Cpu()
			require.Equal(t, "1400m", cpu.String(), "it has until the next round to leave")
			require.Equal(t, tc.want, r.runAt(5*time.Minute))
			require.Empty(t, r.evictions())
			r.kube.ClearActions()
			for minute := range 12 {
				require.Equal(t, tc.want, r.runAt(time.Duration(6+minute)*time.Minute))
			}
			require.Empty(t, r.writes())
			require.EqualValues(t, tc.left, r.skipped(tc.reason), "it leaves as soon as it may")
		})
	}
}

// The evicted pod is not resized any more.
func TestShareStay_LaterEvictionFreesRoom(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy(evicting, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "12:10", End: "13:00"}}}
	}), kubelet("n1", "2000m"), kubelet("n2", "8"))...)
	r.runAt(0)
	require.Equal(t, "666m 666m 666m", r.runAt(5*time.Minute))
	r.change("web-1-0", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("1400m", "200Mi") })
	r.kube.ClearActions()
	require.Equal(t, "1400m 666m 666m", r.runAt(10*time.Minute))
	require.Equal(t, []string{"web-1-0"}, r.evictions())
	require.Empty(t, r.resized())
	r.remove("web-1-0")
	require.Equal(t, "950m 950m", r.runAt(15*time.Minute))
}

func TestShareStay_UnchangedNode(t *testing.T) {
	n := 0
	r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
		unlimited(p)
		p.ResourceVersion = "1" // otherwise it counts as changed in each round
		if n++; n > 1 {
			p.Spec.Containers[0].Resources.Requests = list("950m", "200Mi")
		}
	}), peakingVPA(), sharingOnPolicy(evicting), kubelet("n1", "2"))...)
	require.Equal(t, "1400m 950m 950m", r.runAt(0))
	require.Empty(t, r.writes())
	require.Equal(t, "666m 666m 666m", r.runAt(5*time.Minute))
}
