package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/pkg/kube/sizing"
)

// Three pods with low usage share headroom: each gets base + (peak - base) / 3. One of them has a
// later spike above its peak.
const (
	sharedBase, sharedPeak, shareOfEach = "20m", "110m", "50m"
	peakLimit                           = "150m" // CPU limit before sharing
	calmUse, spikeUse                   = "5m", "400m"
	spikeAfter                          = 30 * time.Second
)

type sharer struct {
	harness.Workload
	before *corev1.Pod
	kernel enforced // before sharing
}

// sharers starts the sharing pods and restarts the updater, which shares in its first iteration and
// again up to five minutes later. Other scenarios must start after that iteration: next to their
// updater, which holds the Lease, sharing is a dry run.
func sharers(t *testing.T) (all []sharer) {
	t.Helper()
	names := []string{"shares-spike", "shares-calm", "shares-calm-too"}
	for i, name := range names {
		use := calmUse
		if i == 0 {
			use = calmUse + ":" + spikeAfter.String() + "," + spikeUse
		}
		all = append(all, sharer{Workload: run(t, name, burner{harness.Container{CPU: sharedPeak, Memory: "20Mi", CPULimit: peakLimit}, use, "10Mi"})})
	}
	for i := range all {
		s := &all[i]
		s.before = awaitRunning(t, s.Workload)
		eventually(t, 10*time.Second, "the sizes it was created with are in force", func() (err error) {
			if s.kernel, err = readEnforced(s.before); err != nil {
				return err
			}
			return s.kernel.follows(s.before)
		})
		// Until then the pod counts as being resized, and is left out of the first round.
		eventually(t, longestWait, "the kubelet tells the sizes it runs with", func() error {
			pod, err := onlyPod(t.Context(), s.Workload)
			if err != nil {
				return err
			}
			if runs := pod.Status.ContainerStatuses[0].Resources; runs == nil || !equality.Semantic.DeepEqual(runs.Requests, pod.Spec.Containers[0].Resources.Requests) {
				return fmt.Errorf("it says %v", runs)
			}
			return nil
		})
		createAdvisedVPAWithin(t, s.Workload, resourceList(sharedBase, "20Mi"), resourceList(sharedPeak, "20Mi"), resourceList(sharedPeak, "20Mi"))
	}
	on, limit := loadlinev1alpha1.SharingOn, loadlinev1alpha1.SharingCPULimitNodeAllocatable
	createPolicy(t, all[0].Workload, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Namespaces.Names, s.Recipe = names, new("cruisekube")
		s.Sharing = &loadlinev1alpha1.Sharing{Mode: &on, CPULimit: &limit}
	})
	updater.Stop()
	require.NoError(t, updater.Start(t.Context()))
	eventually(t, time.Minute, "the updater shares", func() error {
		policy, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), names[0], metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(policy.Status.Conditions, sizing.ConditionSharing) {
			return fmt.Errorf("the conditions of policy %s are %+v", policy.Name, policy.Status.Conditions)
		}
		return nil
	})
	return all
}

// Each sharing pod has less than its peak, also in the kernel's weights. One of them exceeds its
// share as soon as it needs to while the others idle, unimpeded by its limit.
func testSpikeExceedsShareWhileOthersIdle(t *testing.T, all []sharer) {
	t.Parallel()
	began := time.Now()
	pods := make([]*corev1.Pod, len(all))
	for i, s := range all {
		pods[i] = resized(t, s.Workload, s.before, func(pod *corev1.Pod) error {
			cpu := request(pod, corev1.ResourceCPU)
			return checkEqual(shareOfEach, cpu.String())
		})
		after, err := readEnforced(pods[i])
		require.NoError(t, err)
		require.Contains(t, weights(millis(sharedPeak), s.kernel.unified), s.kernel.weight)
		require.Contains(t, weights(millis(shareOfEach), after.unified), after.weight)
		require.Less(t, after.weight, s.kernel.weight)
		require.Greater(t, after.millis, millis(spikeUse), "the limit is what the node has")
	}
	took(t, "shares: pods shrunk to their share, in force in their cgroups", began)

	// On a busy machine the CPU arrives with a delay.
	const window = 3 * time.Second
	least := float64(4*millis(shareOfEach)) / 1000
	before, from := spentBy(t, pods), time.Now()
	start := before
	var used []float64 // cores
	eventually(t, spikeAfter+longestWait, "the spike is served", func() error {
		elapsed := time.Since(from)
		if elapsed < window {
			return fmt.Errorf("it used %.3f cores in the last window", used)
		}
		now := spentBy(t, pods)
		used = nil
		for i := range now {
			used = append(used, (now[i].cpu-before[i].cpu).Seconds()/elapsed.Seconds())
		}
		before, from = now, time.Now()
		if used[0] <= least {
			return fmt.Errorf("it used %.3f cores: want more than %.3f", used[0], least)
		}
		return nil
	})
	t.Logf("cores used in the spike: %.3f", used)
	for _, calm := range used[1:] {
		require.Less(t, calm, float64(millis(shareOfEach))/1000, "the others idle")
	}
	for i := range pods {
		require.Equal(t, start[i].throttled, before[i].throttled, "%s was throttled", pods[i].Name)
	}
	require.Greater(t, before[0].periods, start[0].periods, "or the kernel would not count at all")
	for _, s := range all {
		pod, err := onlyPod(t.Context(), s.Workload)
		require.NoError(t, err)
		require.Equal(t, s.before.UID, pod.UID, "the pod was replaced")
		require.Zero(t, restarts(pod))
		cpu := request(pod, corev1.ResourceCPU)
		require.Equal(t, shareOfEach, cpu.String(), "a spike changes nobody's share")
		remove(t, s.Workload) // frees room on the node
	}
}

func millis(cpu string) int64 { q := resource.MustParse(cpu); return q.MilliValue() }

func resourceList(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func spentBy(t *testing.T, pods []*corev1.Pod) (all []spent) {
	t.Helper()
	for _, pod := range pods {
		s, err := readSpent(pod)
		require.NoError(t, err)
		all = append(all, s)
	}
	return all
}
