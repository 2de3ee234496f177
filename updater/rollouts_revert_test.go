package updater

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	ktesting "k8s.io/client-go/testing"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

// kubelet applies the resources in the pod spec, or sets the reason for not applying them.
func (r *rolling) kubelet(name string, reason string) {
	r.t.Helper()
	r.change(name, func(p *corev1.Pod) {
		p.Status.Conditions = append([]corev1.PodCondition{}, p.Status.Conditions[0])
		if reason != "" {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(r.now)})
			return
		}
		p.Status.ContainerStatuses[0].Resources = p.Spec.Containers[0].Resources.DeepCopy()
	})
}

func (r *rolling) deferredReverts() int {
	return int(r.value("loadline_updater_deferred_reverts_total", "vpa_name", "deployment-web"))
}

func killedWhileChanged(t *testing.T) *rolling {
	t.Helper()
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.killed("web-1-0", time.Minute)
	r.drainEvents()
	r.judge(61 * time.Second)
	require.Equal(t, "100m 100Mi", r.requests("web-1-0"))
	require.Equal(t, []string{"web-1-0"}, r.noted(), "the kubelet has not acted yet")
	require.Zero(t, r.reverts())
	require.Empty(t, r.drainEvents())
	require.Equal(t, loadlinev1alpha1.RoundReverted, r.record().Rounds[0].Outcome, "no other pod gets the sizes")
	return r
}

func TestRevert_CountsOnceKubeletHasAppliedIt(t *testing.T) {
	r := killedWhileChanged(t)
	r.judge(62 * time.Second)
	require.Zero(t, r.reverts())
	r.kubelet("web-1-0", "")
	r.judge(70 * time.Second)
	require.Equal(t, 1, r.reverts())
	require.Empty(t, r.noted())
	require.Contains(t, strings.Join(r.drainEvents(), "\n"), "Warning Reverted Change reverted, a container ran out of memory")
	require.Equal(t, loadlinev1alpha1.RoundReverted, r.record().Rounds[0].Outcome)
	require.Zero(t, r.deferredReverts())
}

func TestRevert_RestoresMemoryWithoutFreeCPU(t *testing.T) {
	r := killedWhileChanged(t)
	r.kubelet("web-1-0", corev1.PodReasonDeferred)
	r.judge(63 * time.Second)
	require.Equal(t, "50m 100Mi", r.requests("web-1-0"), "memory alone")
	r.judge(64 * time.Second)
	require.Equal(t, "50m 100Mi", r.requests("web-1-0"))
	require.NotEmpty(t, r.noted())
	r.kubelet("web-1-0", "")
	r.judge(70 * time.Second)
	require.Equal(t, 1, r.reverts())
	require.Empty(t, r.noted())
	require.Equal(t, "50m 100Mi", r.requests("web-1-0"))
}

func TestRevert_EndsAsDeferredWithoutRoom(t *testing.T) {
	for _, reason := range []string{corev1.PodReasonDeferred, corev1.PodReasonInfeasible} {
		t.Run(reason, func(t *testing.T) {
			r := killedWhileChanged(t)
			r.kubelet("web-1-0", reason)
			r.judge(63 * time.Second)
			if reason == corev1.PodReasonDeferred {
				r.judge(5 * time.Minute)
				require.NotEmpty(t, r.noted(), "it may get room yet")
				require.Zero(t, r.deferredReverts())
			}
			r.judge(7 * time.Minute)
			require.Empty(t, r.noted())
			require.Zero(t, r.reverts())
			require.Equal(t, 1, r.deferredReverts())
			require.Contains(t, strings.Join(r.drainEvents(), "\n"), "Warning RevertDeferred ")
			s := r.record()
			require.Equal(t, loadlinev1alpha1.RoundDeferred, s.Rounds[0].Outcome)
			require.EqualValues(t, 1, s.ConsecutiveReverts)
			require.NotEmpty(t, s.Reverted)
		})
	}
}

func TestNote_KeptWhileRecordCacheIsStale(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	var mu sync.Mutex
	deaf := true
	r.vpa.PrependWatchReactor("sizingrecords", func(ktesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		return deaf, watch.NewFake(), nil
	})
	next := r.secondLeader()
	mu.Lock()
	deaf = false
	mu.Unlock()
	require.Equal(t, []string{"web-1-0"}, r.at(0)) // the old leader changes a pod, then ends
	next.settled("web-1-0")
	_, err := next.sync("web-1-0", 40*time.Second)
	require.NoError(t, err)
	require.Contains(t, r.pod("web-1-0").Annotations, convert.ResizedAtAnnotation)
	next.restarted("web-1-0", 5)
	next.judge(time.Minute)
	require.Equal(t, "100m 100m 100m", r.sizes())
	require.Equal(t, loadlinev1alpha1.RoundReverted, r.record().Rounds[0].Outcome)
}

// The resize policy makes the resize itself restart the container.
func TestHarm_IgnoresRestartByResizePolicy(t *testing.T) {
	for _, tc := range []struct {
		name              string
		policy            []corev1.ContainerResizePolicy
		tolerated, counts int32
		reverted          bool
	}{
		{name: "restart of the resize", policy: restartsFor(corev1.ResourceMemory), tolerated: 1, counts: 1},
		{name: "one more", policy: restartsFor(corev1.ResourceMemory), tolerated: 1, counts: 2, reverted: true},
		{name: "one more where two are harm", policy: restartsFor(corev1.ResourceMemory), tolerated: 2, counts: 2},
		{name: "no restart by the resize", tolerated: 1, counts: 1, reverted: true},
		{name: "both resources", policy: append(restartsFor(corev1.ResourceMemory), restartsFor(corev1.ResourceCPU)...), tolerated: 1, counts: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pods := deployment(3, func(p *corev1.Pod) { p.Spec.Containers[0].ResizePolicy = tc.policy })
			r := roll(t, Default(), append(pods, lowering(generatedVPA()), sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.Safety = &loadlinev1alpha1.Safety{Restarts: new(tc.tolerated)}
			}), healthy("n1"))...)
			require.Equal(t, []string{"web-1-0"}, r.at(0))
			r.restarted("web-1-0", tc.counts)
			r.judge(20 * time.Second)
			require.Equal(t, tc.reverted, r.requests("web-1-0") == "100m 100Mi")
		})
	}
}

func restartsFor(name corev1.ResourceName) []corev1.ContainerResizePolicy {
	return []corev1.ContainerResizePolicy{{ResourceName: name, RestartPolicy: corev1.RestartContainer}}
}

// The note must stay within the readable size.
func TestResize_LimitsContainersToNoteSize(t *testing.T) {
	pods := deployment(2, func(p *corev1.Pod) {
		for i := range 299 {
			p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
			p.Spec.Containers[i+1].Name = fmt.Sprintf("%s-%d", strings.Repeat("x", 50), i)
		}
	})
	vpa := lowering(generatedVPA())
	for _, c := range pods[len(pods)-1].(*corev1.Pod).Spec.Containers[1:] {
		one := vpa.Status.Recommendation.ContainerRecommendations[0]
		one.ContainerName = c.Name
		vpa.Status.Recommendation.ContainerRecommendations = append(vpa.Status.Recommendation.ContainerRecommendations, one)
	}
	r := roll(t, Default(), append(pods, vpa, autoPolicy(), healthy("n1"))...)
	r.runOnce(noon)
	pod := r.pod("web-1-0")
	note, err := convert.ParseChange(pod)
	require.NoError(t, err)
	changed := 0
	for _, c := range pod.Spec.Containers {
		if c.Resources.Requests.Cpu().String() == "50m" {
			changed++
		}
	}
	require.Len(t, note.Containers, changed, "each can be taken back")
	require.Greater(t, changed, 30)
	require.Less(t, changed, 300)
}
