package updater

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

func nodeOf700Mi() *corev1.Node {
	return kubelet("n1", "8", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("700Mi") })
}

// newMemorySharing returns three pods that share the memory of node n1, which has 700 MiB. Node n2
// has room for all.
func newMemorySharing(t *testing.T, change func(*Config), policy *loadlinev1alpha1.SizingPolicy) *rolling {
	t.Helper()
	config := Default()
	if change != nil {
		change(config)
	}
	r := shareWith(t, config, append(peakingPods(3, unlimited), peakingVPA(), policy, nodeOf700Mi(), kubelet("n2", "8"))...)
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	require.Equal(t, "139810133 139810133 139810133", r.memory())
	return r
}

func fillNode(r *rolling) { r.fill("300Mi") }

func (r *rolling) fill(memory string) {
	r.t.Helper()
	pod := peakingPods(1, unlimited)[2].(*corev1.Pod)
	pod.Name, pod.UID, pod.Labels, pod.OwnerReferences = "other", "uid-other", map[string]string{}, nil
	pod.Spec.Containers[0].Resources.Requests = list("100m", memory)
	_, err := r.kube.CoreV1().Pods("shop").Create(r.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(r.t, err)
	r.await("the pod", func(*corev1.Pod) bool { return true }, "other")
}

func (r *rolling) setMemoryPeak(memory string) {
	r.t.Helper()
	vpas := r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop")
	vpa, err := vpas.Get(r.t.Context(), "deployment-web", metav1.GetOptions{})
	require.NoError(r.t, err)
	vpa = vpa.DeepCopy()
	one := &vpa.Status.Recommendation.ContainerRecommendations[0]
	one.Target, one.UpperBound = list("1400m", memory), list("2", memory)
	_, err = vpas.Update(r.t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		known, err := r.loop.reader.VPAs.VerticalPodAutoscalers("shop").Get("deployment-web")
		return err == nil && known.Status.Recommendation.ContainerRecommendations[0].Target.Memory().String() == memory
	}, time.Minute, time.Millisecond)
}

// oomKill simulates an OOM kill of a container that recovers at once.
func (r *rolling) oomKill(name string, after time.Duration) {
	r.t.Helper()
	r.change(name, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(after), 1)}
	})
}

// The policy must allow evictions, too.
func TestShareOOMKill_EvictsOnlyOnFullNode(t *testing.T) {
	for name, c := range map[string]struct {
		config func(*Config)
		policy *loadlinev1alpha1.SizingPolicy
		change func(r *rolling)
		wants  string // memory
		evicts []string
		why    string // skip reason
	}{
		"there is room":         {policy: sharingOnPolicy(cpuAndMemory, evicting), change: func(*rolling) {}, wants: "200Mi"},
		"its node is full":      {policy: sharingOnPolicy(cpuAndMemory, evicting), change: fillNode, evicts: []string{"web-1-1"}},
		"it evicts nobody":      {policy: sharingOnPolicy(cpuAndMemory), change: fillNode, why: "NodeFull"},
		"the method":            {policy: sharingOnPolicy(cpuAndMemory, evicting, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Method = nil }), change: fillNode, why: "NodeFull"},
		"too few replicas":      {config: func(c *Config) { c.Disruption.MinReplicas = 4 }, policy: sharingOnPolicy(cpuAndMemory, evicting), change: fillNode, why: "BelowMinReplicas"},
		"a PodDisruptionBudget": {policy: sharingOnPolicy(cpuAndMemory, evicting), change: func(r *rolling) { r.fill("300Mi"); r.refuse("create", "pods/eviction", fmt.Errorf("the budget")) }, why: "EvictionRefused"},
		"outside the schedule": {policy: sharingOnPolicy(cpuAndMemory, evicting, func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
		}), change: fillNode, why: "OutsideWindow"},
		"no other node has room": {policy: sharingOnPolicy(cpuAndMemory, evicting), change: func(r *rolling) {
			require.NoError(t, r.kube.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}))
			require.Eventually(t, func() bool { _, err := r.loop.shareRounds.Sharing.Nodes.Get("n2"); return err != nil }, time.Minute, time.Millisecond)
			r.fill("300Mi")
		}, why: "NodeFull"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMemorySharing(t, c.config, c.policy)
			c.change(r)
			r.oomKill("web-1-1", time.Minute)
			r.runAt(time.Minute)
			require.Equal(t, c.evicts, r.evictions())
			wants := c.wants
			if wants == "" {
				wants = "139810133"
			}
			require.Equal(t, wants, strings.Fields(strings.Replace(r.memory(), "300Mi ", "", 1))[1])
			if c.why != "" {
				require.EqualValues(t, 1, r.skipped(c.why))
			}
			if len(c.evicts) > 0 {
				require.Contains(t, strings.Join(r.drainEvents(), "\n"), "MemoryRefused")
				require.EqualValues(t, 1, r.value("loadline_sharing_evictions_total", "mode", "On"))
				require.Zero(t, r.skipped("NodeFull"))
			}
		})
	}
}

// A full node is no reason for a share eviction unless memory is shared.
func TestShareOOMKill_CPUOnlySharingIsHandledAsUsual(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy(evicting), nodeOf700Mi(), kubelet("n2", "8"))...)
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.oomKill("web-1-1", time.Minute)
	r.recommend("1400m", "300Mi")
	r.runAt(time.Minute)
	require.NotContains(t, strings.Join(r.drainEvents(), "\n"), "MemoryRefused")
}

func TestShareOOMKill_RespectsNoEvictionRanking(t *testing.T) {
	for rank, evicts := range map[string][]string{"no-eviction": nil, "high": {"web-1-1"}} {
		r := newMemorySharing(t, nil, sharingOnPolicy(cpuAndMemory, evicting))
		r.annotateDeployment("loadline.dev/eviction-ranking", rank, func() bool {
			d := r.caches.policies.For(peakingVPA())
			return d.Rank("Deployment", 3).String() == rank
		})
		r.runAt(5 * time.Minute)
		r.fill("300Mi")
		r.oomKill("web-1-1", 6*time.Minute)
		r.runAt(6 * time.Minute)
		require.Equal(t, evicts, r.evictions(), rank)
	}
}

func TestShareOOMKill_KeepsLastReadyPod(t *testing.T) {
	for ready, evicts := range map[corev1.ConditionStatus][]string{corev1.ConditionFalse: nil, corev1.ConditionTrue: {"web-1-1"}} {
		r := newMemorySharing(t, func(c *Config) { c.Disruption.MinReplicas, c.Disruption.Tolerance = 1, 1 }, sharingOnPolicy(cpuAndMemory, evicting))
		for _, other := range []string{"web-1-0", "web-1-2"} {
			r.change(other, func(p *corev1.Pod) { p.Status.Conditions[0].Status = ready })
		}
		r.fill("300Mi")
		r.oomKill("web-1-1", time.Minute)
		r.runAt(time.Minute)
		require.Equal(t, evicts, r.evictions(), ready)
	}
}

// The reaction to the first kill continues.
func TestShareOOMKill_CountsOnceInFiveMinutes(t *testing.T) {
	r := newMemorySharing(t, nil, sharingOnPolicy(cpuAndMemory, evicting))
	r.oomKill("web-1-1", time.Minute)
	r.runAt(time.Minute)
	require.Equal(t, "139810133 200Mi 139810133", r.memory())
	r.fill("230Mi")
	r.setMemoryPeak("250Mi")
	r.oomKill("web-1-1", 4*time.Minute)
	r.runAt(4 * time.Minute)
	require.Empty(t, r.evictions(), "three minutes after the first")
	require.Contains(t, r.memory(), "200Mi", "nor is its memory made smaller")
	r.oomKill("web-1-1", 5*time.Minute+59*time.Second)
	r.runAt(5*time.Minute + 59*time.Second)
	require.Empty(t, r.evictions(), "the second does not count anew")
	r.oomKill("web-1-1", 6*time.Minute)
	r.runAt(6*time.Minute + time.Second)
	require.Equal(t, []string{"web-1-1"}, r.evictions())
}

// Restarts after an OOM kill may count as harm as well. Missing CPU must cause no eviction.
func TestShareOOMKill_MemoryDoesNotWaitForCPU(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy(cpuAndMemory, evicting), kubelet("n1", "2400m"), kubelet("n2", "8"))...)
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.change("web-1-1", func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(time.Minute), 2)}
	})
	require.Equal(t, "800m 800m 800m", r.runAt(time.Minute))
	require.Contains(t, r.marks()[1], "reverted")
	require.Equal(t, "200Mi", strings.Fields(r.memory())[1])
	require.Equal(t, "800m 800m 800m", r.runAt(2*time.Minute))
	require.EqualValues(t, 1, r.skipped("NodeFull"))
	require.Empty(t, r.evictions())
	r.remove("web-1-2")
	require.Equal(t, "800m 1400m", r.runAt(3*time.Minute))
}

func TestShareOOMKill_EvictsAfterRepeatedRefusals(t *testing.T) {
	r := newMemorySharing(t, nil, sharingOnPolicy(cpuAndMemory, evicting))
	r.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		refused := a.GetSubresource() == "resize" && strings.Contains(string(a.(ktesting.PatchAction).GetPatch()), "200Mi")
		return refused, nil, invalid("web-1-1")
	})
	r.oomKill("web-1-1", time.Minute)
	for minute := range 3 {
		r.runAt(time.Duration(minute+1) * time.Minute)
		require.Empty(t, r.evictions())
		require.EqualValues(t, 1, r.skipped("ResizeRefused"))
	}
	r.runAt(4 * time.Minute)
	require.Equal(t, []string{"web-1-1"}, r.evictions())
}

// An early iteration does not check the admission controller, the next one does.
func TestShareOOMKill_EarlyIterationDoesNotEvict(t *testing.T) {
	r := newMemorySharing(t, nil, sharingOnPolicy(cpuAndMemory, evicting))
	r.fill("300Mi")
	r.oomKill("web-1-1", time.Minute)
	r.change("web-1-1", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
	r.now = noon.Add(time.Minute)
	r.loop.RunOOM(t.Context(), r.now, []cache.ObjectName{cache.NewObjectName("shop", "deployment-web")})
	require.Empty(t, r.evictions())
	r.runAt(2 * time.Minute)
	require.Equal(t, []string{"web-1-1"}, r.evictions())
	require.False(t, slices.Contains(r.resized()[3:], "web-1-1"))
}
