package updater

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/reason"
)

func TestShareRevert_RestoresPeakForOneDay(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy())
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.restarted("web-1-1", 1)
	require.Equal(t, "800m 800m 800m", r.runAt(time.Minute))
	r.restarted("web-1-1", 2)
	require.Equal(t, "800m 1400m 800m", r.runAt(2*time.Minute))
	require.Equal(t, "cpu at 2026-01-02T12:02:00Z after 2 reverted", r.marks()[1])
	require.Contains(t, strings.Join(r.drainEvents(), "\n"), "ShareReverted")
	for _, after := range []time.Duration{3 * time.Minute, 5 * time.Minute, 24 * time.Hour} {
		require.Equal(t, "1400m", strings.Fields(r.runAt(after))[1], after)
	}
	r.runAt(24*time.Hour + 2*time.Minute)
	require.Equal(t, "800m 800m 800m", r.runAt(24*time.Hour+5*time.Minute))
}

// Harm is recorded at once, even if the peak does not fit yet. The harmed pod grows first.
func TestShareRevert_WaitsUntilPeakFits(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy(), kubelet("n1", "2400m"))
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.restarted("web-1-1", 2)
	require.Equal(t, "800m 800m 800m", r.runAt(time.Minute))
	require.Equal(t, "cpu at 2026-01-02T12:01:00Z after 2 reverted", r.marks()[1])
	r.kube.ClearActions()
	require.Equal(t, "800m 800m 800m", r.runAt(2*time.Minute))
	require.Empty(t, r.writes(), "it is written once")
	r.remove("web-1-2")
	require.Equal(t, "1 1400m", r.runAt(30*time.Minute), "there is room for it, and the rest is the other's")
}

// Slow harm must be detected as well.
func TestShare_RestartedPodDoesNotShrink(t *testing.T) {
	for _, tc := range []struct {
		name  string
		again bool
	}{
		{name: "second restart", again: true},
		{name: "no further restart"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newSharing(t, 3, sharingOnPolicy())
			require.Equal(t, "800m 800m 800m", r.runAt(0))
			r.restarted("web-1-1", 1)
			r.arrive("web-1-3")
			require.Equal(t, "725m 800m 725m 725m", r.runAt(5*time.Minute))
			require.Equal(t, "cpu at 2026-01-02T12:00:00Z after 0", r.marks()[1])
			require.EqualValues(t, 1, r.skipped("UnderObservation"))
			if tc.again {
				r.restarted("web-1-1", 2)
				require.Equal(t, "725m 1400m 725m 725m", r.runAt(9*time.Minute))
				return
			}
			require.Equal(t, "725m 800m 725m 725m", r.runAt(14*time.Minute))
			require.EqualValues(t, 1, r.skipped("UnderObservation"))
			require.Equal(t, "725m 800m 725m 725m", r.runAt(15*time.Minute))
			require.EqualValues(t, 1, r.skipped("RecentlyShrunk"), "nobody waits for what it would give")
			require.Equal(t, "725m 725m 725m 725m", r.runAt(65*time.Minute))
		})
	}
}

// Conditions that block a smaller CPU share must not delay memory.
func TestShare_OOMMemoryDoesNotWaitForCPU(t *testing.T) {
	for _, tc := range []struct {
		name   string
		after  time.Duration
		hinder func(r *rolling)
	}{
		{name: "nothing prevents it", after: 5 * time.Minute, hinder: func(*rolling) {}},
		{name: "cordoned node", after: 5 * time.Minute, hinder: func(r *rolling) {
			cordoned := kubelet("n1", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true })
			_, err := r.kube.CoreV1().Nodes().Update(r.t.Context(), cordoned, metav1.UpdateOptions{})
			require.NoError(r.t, err)
			require.Eventually(r.t, func() bool {
				n, err := r.loop.shareRounds.Sharing.Nodes.Get("n1")
				return err == nil && n.Spec.Unschedulable
			}, time.Minute, time.Millisecond)
		}},
		{name: "pod changed by another controller", after: 4 * time.Minute, hinder: func(r *rolling) {
			r.change("web-1-1", func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("900m")
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newSharing(t, 3, sharingOnPolicy(cpuAndMemory))
			require.Equal(t, "800m 800m 800m", r.runAt(0))
			r.arrive("web-1-3")
			tc.hinder(r)
			r.change("web-1-1", func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(4*time.Minute), 1)}
			})
			cpu := r.pod("web-1-1").Spec.Containers[0].Resources.Requests.Cpu().String()
			require.Equal(t, cpu, strings.Fields(r.runAt(tc.after))[1])
			require.Equal(t, "200Mi", strings.Fields(r.memory())[1])
		})
	}
}

func (r *rolling) resized() (names []string) {
	for _, a := range r.kube.Actions() {
		if patch, is := a.(ktesting.PatchAction); is && a.GetSubresource() == "resize" {
			names = append(names, patch.GetName())
		}
	}
	return names
}

func TestShareRevert_PrecedesOtherMoves(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy())
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.arrive("web-1-3")
	r.restarted("web-1-2", 2)
	r.kube.ClearActions()
	require.Equal(t, "725m 725m 1400m 725m", r.runAt(5*time.Minute))
	require.Equal(t, []string{"web-1-2", "web-1-3", "web-1-0", "web-1-1"}, r.resized())
}

func TestShare_SmallMemoryIncreaseAfterOOMKill(t *testing.T) {
	vpa := peakingVPA()
	c := &vpa.Status.Recommendation.ContainerRecommendations[0]
	c.LowerBound, c.Target, c.UpperBound = list("500m", "20Mi"), list("1400m", "30Mi"), list("2", "30Mi")
	r := shareWith(t, Default(), append(peakingPods(1, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("1400m", "24Mi")
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(-time.Minute), 1)}
	}), vpa, sharingOnPolicy(cpuAndMemory))...)
	r.runAt(0)
	require.Equal(t, "30Mi", r.memory())
}

func TestShare_CombinesMemoryAndCPUInOneResize(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(2, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("1400m", "50Mi")
	}), peakingVPA(), sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MaxConcurrent = new(int32(0)) }))...)
	r.runOnce(noon)
	require.Equal(t, "950m 200Mi", r.requests("web-1-0"))
	resizes := slices.DeleteFunc(r.writes(), func(w string) bool { return w != "patch pods resize" })
	require.Len(t, resizes, 2)
	require.NotContains(t, r.pod("web-1-0").Annotations[convert.OriginalAnnotation], `"cpu":"950m"`, "the share is not judged with it")
}

func TestShare_OOMKillRestoresMemoryPeak(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.Resources = []corev1.ResourceName{"memory"} }))
	memory := func() (all []string) {
		for _, p := range r.pods() {
			all = append(all, p.Spec.Containers[0].Resources.Requests.Memory().String())
		}
		return all
	}
	share := memory()[0]
	r.runAt(0)
	require.NotEqual(t, share, memory()[0])
	share = memory()[0]
	require.Equal(t, []string{share, share, share}, memory())
	r.change("web-1-1", func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(time.Minute), 1)}
	})
	r.now = noon.Add(time.Minute)
	r.loop.RunOOM(t.Context(), r.now, []cache.ObjectName{cache.NewObjectName("shop", "deployment-web")})
	require.Equal(t, []string{share, "200Mi", share}, memory())
	r.awaitCache()
	r.change("web-1-1", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
	r.runAt(5 * time.Minute)
	require.Equal(t, "200Mi", memory()[1], "for five minutes it is not made smaller")
	r.runAt(14 * time.Minute)
	require.Equal(t, "200Mi", memory()[1], "it restarted less than 15 minutes after it was made smaller")
	require.EqualValues(t, 1, r.skipped("UnderObservation"))
	r.runAt(15 * time.Minute)
	require.Equal(t, "200Mi", memory()[1], "nobody waits for what it would give")
	r.runAt(time.Hour)
	require.Equal(t, []string{share, share, share}, memory())
	require.Empty(t, r.evictions())
}

func TestShare_KeepsPeakIfResizeRestarts(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
	}), peakingVPA(), sharingOnPolicy())...)
	require.Equal(t, "1400m 1400m 1400m", r.runAt(0))
	require.Equal(t, map[reason.Reason]int{reason.RestartsOnResize: 3}, r.shares(noon).Apart)
}

// A resource that is no longer shared, while another one still is, grows back to its peak without a
// share.
func TestShare_UnsharedResourceReturnsToPeak(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy(cpuAndMemory))
	r.runAt(0)
	require.NotContains(t, r.memory(), "200Mi")
	require.Contains(t, r.marks()[0], "cpu,memory at ")
	shares := r.memory()
	r.edit(onlyCPU)
	r.runAt(time.Minute)
	require.Equal(t, shares, r.memory(), "until the next round")
	require.Equal(t, "800m 800m 800m", r.runAt(5*time.Minute))
	require.Equal(t, "200Mi 200Mi 200Mi", r.memory())
	require.Equal(t, "800m 800m 800m", r.runAt(6*time.Minute))
	for _, mark := range r.marks() {
		require.True(t, strings.HasPrefix(mark, "cpu at "), mark)
	}
	r.kube.ClearActions()
	require.Equal(t, "800m 800m 800m", r.runAt(10*time.Minute))
	require.Empty(t, r.writes())
	require.Equal(t, "200Mi 200Mi 200Mi", r.memory())
}

// An unreadable mark counts for all resources, but the policy shares only one.
func TestShareMark_UnreadableKeepsMemory(t *testing.T) {
	for _, has := range []string{"200Mi", "50Mi"} {
		r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
			unlimited(p)
			p.Annotations = map[string]string{convert.SharedAnnotation: "true"}
			p.Spec.Containers[0].Resources.Requests = list("1400m", has)
		}), peakingVPA(), sharingOnPolicy())...)
		r.runAt(0)
		require.Equal(t, "800m 800m 800m", r.runAt(time.Minute))
		require.Equal(t, "200Mi 200Mi 200Mi", r.memory())
		r.runAt(2 * time.Minute)
		for _, mark := range r.marks() {
			require.NotContains(t, mark, "memory")
			require.NotEqual(t, "true", mark)
		}
	}
}
