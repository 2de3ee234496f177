package updater

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/flags"
)

func sharingOnPolicy(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	return sharingPolicy(loadlinev1alpha1.SharingOn, append([]func(*loadlinev1alpha1.SizingPolicySpec){automatic}, changes...)...)
}

// newSharing returns a world in which pods of the Deployment "web" share node n1.
func newSharing(t *testing.T, pods int, policy *loadlinev1alpha1.SizingPolicy, objects ...runtime.Object) *rolling {
	t.Helper()
	return shareWith(t, Default(), append(append(peakingPods(pods, unlimited), peakingVPA(), policy), objects...)...)
}

func unlimited(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }

// shareWith returns a rolling world, with node n1 unless the objects contain a node.
func shareWith(t *testing.T, config *Config, objects ...runtime.Object) *rolling {
	t.Helper()
	if !slices.ContainsFunc(objects, func(o runtime.Object) bool { _, is := o.(*corev1.Node); return is }) {
		objects = append(objects, kubelet("n1", "8"))
	}
	return roll(t, config, objects...)
}

// runAt runs an iteration at a time after noon, waits for the informer cache and returns the CPU
// requests.
func (r *rolling) runAt(after time.Duration) string {
	r.t.Helper()
	r.runOnce(noon.Add(after))
	r.awaitCache()
	return r.sizes()
}

// awaitCache waits until the informer cache has all current pods.
func (r *rolling) awaitCache() {
	r.t.Helper()
	for _, p := range r.pods() {
		r.settled(p.Name)
		mark := p.Annotations[convert.SharedAnnotation]
		r.await("the mark", func(c *corev1.Pod) bool { return c.Annotations[convert.SharedAnnotation] == mark }, p.Name)
	}
}

func (r *rolling) marks() (all []string) {
	for _, p := range r.pods() {
		all = append(all, p.Annotations[convert.SharedAnnotation])
	}
	return all
}

func (r *rolling) condition() string {
	r.t.Helper()
	policy, err := r.vpa.LoadlineV1alpha1().SizingPolicies().Get(r.t.Context(), "fleet", metav1.GetOptions{})
	require.NoError(r.t, err)
	c := meta.FindStatusCondition(policy.Status.Conditions, "Sharing")
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// arrive adds a pod at its peak to node n1.
func (r *rolling) arrive(name string) {
	r.t.Helper()
	pod := peakingPods(1, unlimited)[2].(*corev1.Pod)
	pod.Name, pod.UID, pod.Spec.Containers[0].Resources.Requests = name, "uid-"+pod.UID, list("1400m", "200Mi")
	_, err := r.kube.CoreV1().Pods("shop").Create(r.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(r.t, err)
	r.await("the pod", func(*corev1.Pod) bool { return true }, name)
}

// Three equal pods with 0.5 cores base and 1.4 cores peak get 0.8 cores each. A fourth pod shrinks
// them all.
func TestShare_DividesHeadroomOfNode(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy())
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	require.Equal(t, slices.Repeat([]string{"cpu at 2026-01-02T12:00:00Z after 0"}, 3), r.marks())
	require.Equal(t, "True Shares: pods that share: 3", r.condition())
	require.EqualValues(t, 3, r.value("loadline_sharing_pods", "mode", "On"))
	require.InDelta(t, 0.9, r.value("loadline_sharing_headroom_cores", "mode", "On"), 1e-6)
	require.NotContains(t, strings.Join(r.drainEvents(), "\n"), "Evicted")

	r.kube.ClearActions()
	for minute := range 12 {
		require.Equal(t, "800m 800m 800m", r.runAt(time.Duration(minute+1)*time.Minute))
	}
	require.Empty(t, r.writes(), "nothing changed")
	require.EqualValues(t, 3, r.skipped("HasShare"))

	r.arrive("web-1-3")
	require.Equal(t, "800m 800m 800m 1400m", r.runAt(14*time.Minute), "until the next round all stay as they are")
	require.Equal(t, "725m 725m 725m 725m", r.runAt(15*time.Minute))
}

// A restarted process computes the same shares.
func TestShare_MarksPodBeforeResize(t *testing.T) {
	r := newSharing(t, 2, sharingOnPolicy())
	require.Equal(t, "950m 950m", r.runAt(0))
	require.Equal(t, slices.Repeat([]string{"patch pods ", "patch pods resize"}, 2), r.writes())
	require.Equal(t, "true", r.pod("web-1-0").Annotations[convert.ResizedAnnotation])
	r.restart()
	r.kube.ClearActions()
	r.runAt(time.Minute)
	require.Empty(t, r.writes())
}

func TestCrash_BetweenShareMarkAndResize(t *testing.T) {
	for mode, want := range map[loadlinev1alpha1.SharingMode]string{loadlinev1alpha1.SharingOn: "800m 800m 800m", loadlinev1alpha1.SharingOff: "1400m 1400m 1400m"} {
		r := newSharing(t, 3, sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.Mode = &mode }))
		r.change("web-1-1", func(p *corev1.Pod) {
			p.Annotations = map[string]string{convert.SharedAnnotation: "cpu at 2026-01-02T11:59:00Z after 0"}
		})
		require.Equal(t, want, r.runAt(0), mode)
		require.Equal(t, mode == loadlinev1alpha1.SharingOn, r.marks()[1] != "", mode)
	}
}

// The sum of requests never exceeds the node.
func TestShare_GrowthWaitsForShrinking(t *testing.T) {
	objects := peakingPods(4, unlimited)
	for i, cpu := range []string{"1400m", "1400m", "200m", "200m"} {
		objects[2+i].(*corev1.Pod).Spec.Containers[0].Resources.Requests = list(cpu, "200Mi")
	}
	r := shareWith(t, Default(), append(objects, peakingVPA(), sharingOnPolicy(), kubelet("n1", "3200m"))...)
	require.Equal(t, "725m 725m 200m 200m", r.runAt(0))
	require.EqualValues(t, 2, r.skipped("NodeFull"))
	require.Equal(t, "725m 725m 725m 725m", r.runAt(time.Minute))
	require.Empty(t, r.evictions())
}

func TestShare_UnknownStateKeepsShares(t *testing.T) {
	for _, tc := range []struct {
		name    string
		obscure func(r *rolling)
	}{
		{name: "unknown nodes",
			obscure: func(r *rolling) { r.loop.shareRounds.Sharing.NodeInformer = syncedWhen(func() bool { return false }) }},
		{name: "paused policy", obscure: func(r *rolling) { r.edit(pausedPolicy) }},
		{name: "Lease of another updater", obscure: func(r *rolling) {
			r.loop.shareRounds.Conditions.Election = &flags.Election{Namespace: "kube-system", Name: "vpa-updater"}
			_, err := r.kube.CoordinationV1().Leases("kube-system").Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("other"), LeaseDurationSeconds: new(int32(24 * 3600)), RenewTime: new(metav1.NewMicroTime(noon))},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}},
		{name: "unreadable Lease", obscure: func(r *rolling) {
			r.loop.shareRounds.Conditions.Election = &flags.Election{Namespace: "kube-system", Name: "vpa-updater"}
			r.kube.PrependReactor("get", "leases", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newSharing(t, 3, sharingOnPolicy())
			require.Equal(t, "800m 800m 800m", r.runAt(0))
			tc.obscure(r)
			r.arrive("web-1-3")
			for minute := range 12 {
				require.Equal(t, "800m 800m 800m 1400m", r.runAt(time.Duration(minute+1)*time.Minute))
			}
			require.NotContains(t, r.marks()[:3], "")
			if tc.name == "unreadable Lease" {
				require.Contains(t, r.condition(), "False AnotherUpdater: acts as DryRun: failed to check for another updater: read the "+
					"Lease kube-system/vpa-updater: forbidden")
			}
		})
	}
}

func TestShare_UnknownNodeAutoscalingMovesNoPod(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy())
	r.kube.PrependReactor("get", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the server is away")
	})
	require.Equal(t, "1400m 1400m 1400m", r.runAt(0))
	require.Contains(t, r.condition(), "False NodeAutoscaler: acts as DryRun: failed to check for a node autoscaler; to share anyway")
}

func TestShare_RetriesOnConflict(t *testing.T) {
	for _, subresource := range []string{"", "resize"} {
		r := newSharing(t, 3, sharingOnPolicy())
		r.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
			return a.GetSubresource() == subresource, nil, apierrors.NewConflict(corev1.Resource("pods"), "web-1-0", errors.New("changed"))
		})
		require.Equal(t, "1400m 1400m 1400m", r.runAt(0), subresource)
		r.kube.ReactionChain = r.kube.ReactionChain[1:]
		require.Equal(t, "800m 800m 800m", r.runAt(time.Minute), subresource)
		require.Empty(t, r.evictions(), subresource)
	}
}

func TestShare_ReportsOldKubelet(t *testing.T) {
	objects := append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy(), kubelet("n1", "8"), kubelet("n2", "8", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.32.9" }))
	for _, o := range objects {
		if p, is := o.(*corev1.Pod); is && p.Name == "web-1-2" {
			p.Spec.NodeName = "n2"
		}
	}
	r := shareWith(t, Default(), objects...)
	require.Equal(t, "950m 950m 1400m", r.runAt(0))
	require.Equal(t, "True Shares: pods that share: 2; pods on nodes that do not allow changes: KubeletTooOld=1; such a node is n2", r.condition())
}

// payWorkload returns two pods of a workload in namespace "pay" under policy "pay", with its VPA.
func payWorkload() []runtime.Object {
	vpa := peakingVPA()
	vpa.Labels["loadline.dev/policy"] = "pay"
	objects := append(peakingPods(2, unlimited), vpa)
	for _, o := range objects {
		m := o.(metav1.Object)
		m.SetNamespace("pay")
		m.SetUID(types.UID("pay-" + string(m.GetUID())))
	}
	return objects
}

func TestShare_TwoPoliciesOnOneNode(t *testing.T) {
	second := sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Namespaces.Names, s.Recipe = []string{"pay"}, new("loadline:cpu=shared")
	})
	second.Name = "pay"
	objects := append(peakingPods(2, unlimited), peakingVPA(), sharingOnPolicy(), second, kubelet("n1", "8"))
	r := shareWith(t, Default(), append(objects, payWorkload()...)...)
	r.runAt(0)
	for _, namespace := range []string{"shop", "pay"} {
		for _, name := range []string{"web-1-0", "web-1-1"} {
			pod, err := r.kube.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, "950m", pod.Spec.Containers[0].Resources.Requests.Cpu().String(), "the root of four squares of 900m, for four; the largest alone would be 725m")
		}
	}
}

func TestShare_IneligibleNodesAndPods(t *testing.T) {
	older := func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.32.9" }
	for _, tc := range []struct {
		name    string
		config  func(*Config)
		objects []runtime.Object
		want    string // prefix of the condition
	}{
		{name: "old kubelet", objects: []runtime.Object{kubelet("n1", "8", older)},
			want: "False KubeletTooOld: acts as DryRun: pods on nodes that do not allow changes: KubeletTooOld=3; such a node is n1"},
		{name: "cordoned node", objects: []runtime.Object{kubelet("n1", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true })},
			want: "True Shares: pods that share: 3"},
		{name: "no allocatable resources",
			objects: []runtime.Object{kubelet("n1", "8", func(n *corev1.Node) { n.Status.Allocatable = nil })},
			want:    "False AllocatableUnknown"},
		{name: "HPA on CPU", objects: []runtime.Object{hpa()}, want: "True Shares: pods that share: 0"},
		{name: "one namespace", config: func(c *Config) { c.Kube.Namespace = "shop" }, want: "False NodesUnknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := Default()
			if tc.config != nil {
				tc.config(config)
			}
			r := shareWith(t, config, append(append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy()), tc.objects...)...)
			require.Equal(t, "1400m 1400m 1400m", r.runAt(0))
			require.Equal(t, "1400m 1400m 1400m", r.runAt(time.Minute))
			require.True(t, strings.HasPrefix(r.condition(), tc.want), r.condition())
			require.Equal(t, []string{"", "", ""}, r.marks())
		})
	}
}

func TestShare_PodChangedSinceRoundWaits(t *testing.T) {
	r := newSharing(t, 2, sharingOnPolicy(), kubelet("n1", "8"))
	r.refuse("patch", "pods", fmt.Errorf("not now"))
	require.Equal(t, "1400m 1400m", r.runAt(0))
	r.kube.ReactionChain = r.kube.ReactionChain[1:]
	r.change("web-1-0", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("1200m", "200Mi") })
	require.NoError(t, r.kube.CoreV1().Pods("shop").Delete(t.Context(), "web-1-1", metav1.DeleteOptions{}))
	pod := peakingPods(2, unlimited)[3].(*corev1.Pod)
	pod.UID = "another"
	_, err := r.kube.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	r.await("the pod", func(p *corev1.Pod) bool { return p.UID == "another" }, "web-1-1")
	require.Equal(t, "1200m 1400m", r.runAt(time.Minute))
	require.EqualValues(t, 1, r.skipped("ChangedOutside"))
	require.Equal(t, "950m 950m", r.runAt(5*time.Minute))
}

func TestShare_NodeDeletedBetweenRounds(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy())
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	require.NoError(t, r.kube.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { _, err := r.loop.shareRounds.Sharing.Nodes.Get("n1"); return err != nil }, time.Minute, time.Millisecond)
	for minute := range 12 {
		require.Equal(t, "800m 800m 800m", r.runAt(time.Duration(minute+1)*time.Minute))
	}
	require.Equal(t, "True Shares: pods that share: 0", r.condition())
}

// minAllowed counts in the sums of the node.
func TestShare_RespectsMinAllowed(t *testing.T) {
	vpa := peakingVPA()
	vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MinAllowed: list("1", "0")}}}
	r := shareWith(t, Default(), append(peakingPods(3, unlimited), vpa, sharingOnPolicy())...)
	require.Equal(t, "1133m 1133m 1133m", r.runAt(0), "a headroom of 0.4 for three")
}

// The DryRun pods count with their requests.
func TestShare_DryRunPolicyOnSameNode(t *testing.T) {
	dry := sharingPolicy(loadlinev1alpha1.SharingDryRun, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names = []string{"pay"} })
	dry.Name = "pay"
	objects := append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy(), dry, kubelet("n1", "8"))
	r := shareWith(t, Default(), append(objects, payWorkload()...)...)
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	require.EqualValues(t, 3, r.value("loadline_sharing_pods", "mode", "On"))
	require.EqualValues(t, 2, r.value("loadline_sharing_pods", "mode", "DryRun"))
	for _, name := range []string{"web-1-0", "web-1-1"} {
		pod, err := r.kube.CoreV1().Pods("pay").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "1400m", pod.Spec.Containers[0].Resources.Requests.Cpu().String())
	}
}

func TestDryRun_SharingWritesNothing(t *testing.T) {
	config := Default()
	config.DryRun = true
	r := newSharingWith(t, config)
	said := r.dryRunOutput()
	require.Contains(t, said, "would resize pod shop/web-1-0 (VPA deployment-web, Shared): app cpu 1400m -> 800m\n")
	require.Empty(t, r.writes())
}

func newSharingWith(t *testing.T, config *Config) *rolling {
	t.Helper()
	return shareWith(t, config, append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy())...)
}

func TestShare_RequiresMinWorkloadAge(t *testing.T) {
	config := Default()
	config.SharingMinAge = 10 * time.Minute
	objects := append(peakingPods(3, unlimited), peakingVPA(), sharingOnPolicy())
	objects[0].(*appsv1.Deployment).CreationTimestamp = metav1.NewTime(noon)
	r := shareWith(t, config, objects...)
	require.Equal(t, "1400m 1400m 1400m", r.runAt(5*time.Minute))
	require.Equal(t, "800m 800m 800m", r.runAt(10*time.Minute))
}

// A forged mark only shows that the pod shared.
func TestShareMark_ForgedRestoresPeak(t *testing.T) {
	forged := func(text, cpu string, objects ...runtime.Object) *rolling {
		return shareWith(t, Default(), append(peakingPods(2, func(p *corev1.Pod) {
			unlimited(p)
			p.Annotations = map[string]string{convert.SharedAnnotation: text}
			p.Spec.Containers[0].Resources.Requests = list(cpu, "200Mi")
		}), objects...)...)
	}
	for _, text := range []string{"true", "cpu at 2026-01-02T11:59:00Z after 0", "cpu at 9999-01-02T11:59:00Z after 0 reverted"} {
		r := forged(text, "200m", peakingVPA(), autoPolicy())
		require.Equal(t, "1400m 1400m", r.runAt(0), text)
		r.runAt(time.Minute)
		require.Equal(t, []string{"", ""}, r.marks(), text)
		r = forged(text, "2", peakingVPA(), autoPolicy())
		require.Equal(t, "2 2", r.runAt(0), text)
		require.Equal(t, []string{"", ""}, r.marks(), "it has no less than its peak")

		require.Equal(t, "200m 200m", forged(text, "200m", peakingVPA(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend)).runAt(0), "nothing is to be changed")
		require.Equal(t, "800m 800m", forged(text, "200m", peakingVPA(), sharingOnPolicy(), kubelet("n1", "1600m")).runAt(0), "it shares anyway")
	}
}

// The CPU limit of a running pod cannot be removed.
func TestShare_RaisesCPULimitsOfRunningPods(t *testing.T) {
	for limit, want := range map[loadlinev1alpha1.SharingCPULimit]string{
		loadlinev1alpha1.SharingCPULimitKeep: "2", loadlinev1alpha1.SharingCPULimitRemove: "8", loadlinev1alpha1.SharingCPULimitNodeAllocatable: "8",
	} {
		r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = list("2", "1Gi")
		}), peakingVPA(), sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.CPULimit = &limit }))...)
		require.Equal(t, "800m 800m 800m", r.runAt(0), limit)
		has := r.pod("web-1-0").Spec.Containers[0].Resources.Limits
		require.Equal(t, want, has.Cpu().String(), limit)
		require.Equal(t, "1Gi", has.Memory().String(), limit)
		r.edit(sharingOff)
		require.Equal(t, "1400m 1400m 1400m", r.runAt(5*time.Minute), limit)
		require.Equal(t, want, r.pod("web-1-0").Spec.Containers[0].Resources.Limits.Cpu().String(), "limits stay when sharing ends")
	}
}

func TestShare_KeepsCPULimitsCountedByQuota(t *testing.T) {
	for _, tc := range []struct {
		name, counts, want string
	}{
		{name: "limits of CPU", counts: "limits.cpu", want: "2"},
		{name: "requests of CPU", counts: "requests.cpu", want: "8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hard := corev1.ResourceList{corev1.ResourceName(tc.counts): resource.MustParse("20")}
			quota := &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all"},
				Spec:       corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard},
			}
			r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = list("2", "1Gi")
			}), quota, peakingVPA(), sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.Sharing.CPULimit = new(loadlinev1alpha1.SharingCPULimitRemove)
			}))...)
			require.Equal(t, "800m 800m 800m", r.runAt(0))
			require.Equal(t, tc.want, r.pod("web-1-0").Spec.Containers[0].Resources.Limits.Cpu().String())
		})
	}
}

// The limit is the difference to the same cluster in DryRun.
func TestDivide_AllocatesLittlePerPodAtItsShare(t *testing.T) {
	const vpas, each = 200, 5
	allocations := func(policy *loadlinev1alpha1.SizingPolicy) float64 {
		policy.Spec.Namespaces.Names = []string{"*"}
		loop, _, c := steadyCluster{vpas: vpas, pods: each, nodes: 20, policies: []*loadlinev1alpha1.SizingPolicy{policy}}.filled(t)
		loop.shareRounds.Conditions, loop.planner.Capacity = c.sharingConditions(Default()), c.capacity(Default())
		loop.shareRounds.Conditions.Status.Client = nil
		all, err := loop.reader.VPAs.List(labels.Everything())
		require.NoError(t, err)
		for _, vpa := range all { // base equals target
			one := &vpa.Status.Recommendation.ContainerRecommendations[0]
			one.LowerBound = one.Target
		}
		for range 3 {
			loop.RunOnce(t.Context(), noon)
		}
		if *policy.Spec.Sharing.Mode == loadlinev1alpha1.SharingOn {
			it, err := loop.read(t.Context(), noon, func(string) {})
			require.NoError(t, err)
			loop.decide(t.Context(), it, noon)
			require.True(t, it.shares.Has("0-2"))
		}
		return testing.AllocsPerRun(5, func() { loop.RunOnce(t.Context(), noon) })
	}
	dry := allocations(sharingPolicy(loadlinev1alpha1.SharingDryRun, automatic))
	require.LessOrEqual(t, allocations(sharingOnPolicy())-dry, 20.0*vpas*each)
}

func cpuAndMemory(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Sharing.Resources = []corev1.ResourceName{"cpu", "memory"}
}

func onlyCPU(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Sharing.Resources = []corev1.ResourceName{"cpu"}
}

func (r *rolling) memory() string {
	var all []string
	for _, p := range r.pods() {
		all = append(all, p.Spec.Containers[0].Resources.Requests.Memory().String())
	}
	return strings.Join(all, " ")
}
