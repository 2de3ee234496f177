package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// on is a policy whose pods share.
func on(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	return shared(loadlinev1alpha1.SharingOn, append([]func(*loadlinev1alpha1.SizingPolicySpec){automatic}, changes...)...)
}

// newSharing is a world in which pods of the Deployment "web" share node n1.
func newSharing(t *testing.T, pods int, policy *loadlinev1alpha1.SizingPolicy, objects ...runtime.Object) *rolling {
	t.Helper()
	return shareWith(t, Default(), append(append(peakingPods(pods, unlimited), peaking(), policy), objects...)...)
}

// unlimited is a pod without a memory limit.
func unlimited(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }

// shareWith is newWorld with pods that are never refused, as rolling.
func shareWith(t *testing.T, config *Config, objects ...runtime.Object) *rolling {
	t.Helper()
	if !slices.ContainsFunc(objects, func(o runtime.Object) bool { _, is := o.(*corev1.Node); return is }) {
		objects = append(objects, kubelet("n1", "8"))
	}
	return roll(t, config, objects...)
}

// turn makes a pass some time after noon, and waits until the caches have what it did.
func (r *rolling) turn(after time.Duration) string {
	r.t.Helper()
	r.pass(noon.Add(after))
	r.caught()
	return r.sizes()
}

// caught waits until the caches have all pods as they are.
func (r *rolling) caught() {
	r.t.Helper()
	for _, p := range r.pods() {
		r.settled(p.Name)
		mark := p.Annotations[convert.SharedAnnotation]
		r.await("the mark", func(c *corev1.Pod) bool { return c.Annotations[convert.SharedAnnotation] == mark }, p.Name)
	}
}

// marks are the marks of all pods, by name.
func (r *rolling) marks() (all []string) {
	for _, p := range r.pods() {
		all = append(all, p.Annotations[convert.SharedAnnotation])
	}
	return all
}

// condition returns the condition Sharing of the policy.
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

// arrive makes a pod come to node n1, at its peak.
func (r *rolling) arrive(name string) {
	r.t.Helper()
	pod := peakingPods(1, unlimited)[2].(*corev1.Pod)
	pod.Name, pod.UID, pod.Spec.Containers[0].Resources.Requests = name, "uid-"+pod.UID, list("1400m", "200Mi")
	_, err := r.kube.CoreV1().Pods("shop").Create(r.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(r.t, err)
	r.await("the pod", func(*corev1.Pod) bool { return true }, name)
}

// Three equal pods of 0.5 / 1.4 cores end at 0.8 each, and a fourth makes all smaller.
func TestPodsOfANodeShareWhatItHasLeft(t *testing.T) {
	r := newSharing(t, 3, on())
	require.Equal(t, "800m 800m 800m", r.turn(0))
	require.Equal(t, slices.Repeat([]string{"cpu at 2026-01-02T12:00:00Z after 0"}, 3), r.marks())
	require.Equal(t, "True Shares: pods that share: 3", r.condition())
	require.EqualValues(t, 3, r.value("loadline_sharing_pods", "mode", "On"))
	require.InDelta(t, 0.9, r.value("loadline_sharing_headroom_cores", "mode", "On"), 1e-6)
	require.NotContains(t, strings.Join(r.told(), "\n"), "Evicted")

	r.kube.ClearActions()
	for minute := range 12 {
		require.Equal(t, "800m 800m 800m", r.turn(time.Duration(minute+1)*time.Minute))
	}
	require.Empty(t, r.writes(), "nothing changed")
	require.EqualValues(t, 3, r.skipped("HasShare"))

	r.arrive("web-1-3")
	require.Equal(t, "800m 800m 800m 1400m", r.turn(14*time.Minute), "until the next round all stay as they are")
	require.Equal(t, "725m 725m 725m 725m", r.turn(15*time.Minute))
}

// A pod is marked before it is resized, in that order, and a restart computes the same.
func TestAPodIsMarkedBeforeItGetsItsShare(t *testing.T) {
	r := newSharing(t, 2, on())
	require.Equal(t, "950m 950m", r.turn(0))
	require.Equal(t, slices.Repeat([]string{"patch pods ", "patch pods resize"}, 2), r.writes())
	require.Equal(t, "true", r.pod("web-1-0").Annotations[convert.ResizedAnnotation])
	r.anew()
	r.kube.ClearActions()
	r.turn(time.Minute)
	require.Empty(t, r.writes())
}

// What a process that was killed between the mark and the resize leaves is finished by the next.
func TestAProcessThatIsKilledBetweenMarkAndResize(t *testing.T) {
	for mode, want := range map[loadlinev1alpha1.SharingMode]string{loadlinev1alpha1.SharingOn: "800m 800m 800m", loadlinev1alpha1.SharingOff: "1400m 1400m 1400m"} {
		r := newSharing(t, 3, on(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.Mode = &mode }))
		r.change("web-1-1", func(p *corev1.Pod) {
			p.Annotations = map[string]string{convert.SharedAnnotation: "cpu at 2026-01-02T11:59:00Z after 0"}
		})
		require.Equal(t, want, r.turn(0), mode)
		require.Equal(t, mode == loadlinev1alpha1.SharingOn, r.marks()[1] != "", mode)
	}
}

// Growth waits for the pass after the shrinks that make room for it, and no sum is ever more than
// the node has.
func TestGrowthWaitsForWhatShrinksFree(t *testing.T) {
	objects := peakingPods(4, unlimited)
	for i, cpu := range []string{"1400m", "1400m", "200m", "200m"} {
		objects[2+i].(*corev1.Pod).Spec.Containers[0].Resources.Requests = list(cpu, "200Mi")
	}
	r := shareWith(t, Default(), append(objects, peaking(), on(), kubelet("n1", "3200m"))...)
	require.Equal(t, "725m 725m 200m 200m", r.turn(0))
	require.EqualValues(t, 2, r.skipped("NodeFull"))
	require.Equal(t, "725m 725m 725m 725m", r.turn(time.Minute))
	require.Empty(t, r.evictions())
}

// off ends sharing.
func off(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing = nil }

// Pods whose policy ends sharing grow to their peak where it fits, and nobody is evicted for it.
func TestOffOnAFullNodeEvictsNobody(t *testing.T) {
	r := newSharing(t, 3, on(evicting), kubelet("n1", "3"))
	r.change("web-1-2", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("200m", "200Mi") })
	require.Equal(t, "800m 800m 200m", r.turn(0))
	require.Equal(t, "800m 800m 800m", r.turn(time.Minute))
	r.edit(off)
	require.Equal(t, "1400m 800m 800m", r.turn(2*time.Minute), "there is room for one")
	for minute := range 30 {
		require.Equal(t, "1400m 800m 800m", r.turn(time.Duration(3+minute)*time.Minute))
	}
	require.Empty(t, r.evictions())
	require.Equal(t, "", r.marks()[0], "it has its peak")
	require.NotEmpty(t, r.marks()[1])
	require.EqualValues(t, 2, r.skipped("NodeFull"))
	require.Empty(t, r.condition())

	r.gone("web-1-0")
	require.Equal(t, "1400m 1400m", r.turn(time.Hour), "there is room now")
	r.turn(time.Hour + time.Minute)
	require.Equal(t, []string{"", ""}, r.marks())
}

func TestWhoLeavesSharingGetsItsPeak(t *testing.T) {
	for name, leave := range map[string]func(r *rolling){
		"sharing is off": func(r *rolling) { r.edit(off) },
		"only a dry run": func(r *rolling) {
			r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.Mode = new(loadlinev1alpha1.SharingDryRun) })
		},
		"another recipe": func(r *rolling) { r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("loadline") }) },
		"the policy goes": func(r *rolling) {
			require.NoError(r.t, r.vpa.LoadlineV1alpha1().SizingPolicies().Delete(r.t.Context(), "fleet", metav1.DeleteOptions{}))
			r.decided(peaking(), "PolicyUnknown")
		},
		"the workload is taken out": func(r *rolling) {
			d, err := r.kube.AppsV1().Deployments("shop").Get(r.t.Context(), "web", metav1.GetOptions{})
			require.NoError(r.t, err)
			d.Annotations = map[string]string{"loadline.dev/sharing": "off"}
			_, err = r.kube.AppsV1().Deployments("shop").Update(r.t.Context(), d, metav1.UpdateOptions{})
			require.NoError(r.t, err)
			require.Eventually(r.t, func() bool { return r.caches.policies.For(peaking()).OutOfSharing }, time.Minute, time.Millisecond)
		},
		"a HorizontalPodAutoscaler appears": func(r *rolling) {
			r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.HPA = new(loadlinev1alpha1.HPAProceed) })
			_, err := r.kube.AutoscalingV2().HorizontalPodAutoscalers("shop").Create(r.t.Context(), hpa(), metav1.CreateOptions{})
			require.NoError(r.t, err)
			list := r.caches.surroundings.Autoscaling().V2().HorizontalPodAutoscalers().Informer().GetStore().List
			require.Eventually(r.t, func() bool { return len(list()) > 0 }, time.Minute, time.Millisecond)
		},
		"a node autoscaler appears": func(r *rolling) {
			_, err := r.kube.CoreV1().ConfigMaps("kube-system").Create(r.t.Context(), growing(), metav1.CreateOptions{})
			require.NoError(r.t, err)
		},
	} {
		r := newSharing(t, 3, on())
		require.Equal(t, "800m 800m 800m", r.turn(0), name)
		leave(r)
		r.turn(5 * time.Minute)
		require.Equal(t, "1400m 1400m 1400m", r.turn(10*time.Minute), name)
		r.turn(11 * time.Minute)
		require.Equal(t, []string{"", "", ""}, r.marks(), name)
		require.Empty(t, r.evictions(), name)
		r.kube.ClearActions()
		r.turn(12 * time.Minute)
		require.Empty(t, r.writes(), name)
	}
}

// deploymentSays puts an annotation on the Deployment; empty: takes it off.
func (r *rolling) deploymentSays(key, value string, known func() bool) {
	r.t.Helper()
	d, err := r.kube.AppsV1().Deployments("shop").Get(r.t.Context(), "web", metav1.GetOptions{})
	require.NoError(r.t, err)
	d = d.DeepCopy()
	d.Annotations = map[string]string{}
	if value != "" {
		d.Annotations[key] = value
	}
	_, err = r.kube.AppsV1().Deployments("shop").Update(r.t.Context(), d, metav1.UpdateOptions{})
	require.NoError(r.t, err)
	require.Eventually(r.t, known, time.Minute, time.Millisecond)
}

// Who forbids to change pods gets just that: they keep their shares until sharing is switched off, and
// pods may be changed.
func TestWhoForbidsChangesKeepsShares(t *testing.T) {
	mode := func(m loadlinev1alpha1.RolloutMode) func(*rolling) {
		return func(r *rolling) { r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Mode = &m }) }
	}
	for name, c := range map[string]struct{ forbid, allow func(r *rolling) }{
		"Recommend": {mode(loadlinev1alpha1.RolloutModeRecommend), mode(loadlinev1alpha1.RolloutModeAuto)},
		"Observe":   {mode(loadlinev1alpha1.RolloutModeObserve), mode(loadlinev1alpha1.RolloutModeAuto)},
		"skip": {
			func(r *rolling) {
				r.deploymentSays("loadline.dev/skip", "true", func() bool { return r.caches.policies.For(peaking()).Reason != "" })
			},
			func(r *rolling) {
				r.deploymentSays("loadline.dev/skip", "", func() bool { return r.caches.policies.For(peaking()).Reason == "" })
			},
		},
	} {
		r := newSharing(t, 3, on())
		require.Equal(t, "800m 800m 800m", r.turn(0), name)
		c.forbid(r)
		require.Equal(t, "800m 800m 800m", r.turn(5*time.Minute), name)
		require.Equal(t, "800m 800m 800m", r.turn(10*time.Minute), name)
		if name != "skip" {
			require.Contains(t, r.condition(), "False ModeTooCautious", name)
			require.Contains(t, r.condition(), "pods that have a share keep it: to give it back, set spec.sharing.mode: Off first, while pods may be changed", name)
		}
		r.edit(off)
		require.Equal(t, "800m 800m 800m", r.turn(15*time.Minute), name)
		require.NotContains(t, r.marks(), "", name)
		c.allow(r)
		r.turn(20 * time.Minute)
		require.Equal(t, "1400m 1400m 1400m", r.turn(21*time.Minute), name)
		r.turn(22 * time.Minute)
		require.Equal(t, []string{"", "", ""}, r.marks(), name)
	}
}

// While nobody knows whether pods may share, those that do keep their shares.
func TestWhatIsNotKnownMovesNobody(t *testing.T) {
	for name, obscure := range map[string]func(r *rolling){
		"nodes are not known": func(r *rolling) { r.loop.reader.NodesSynced = func() bool { return false } },
		"paused":              func(r *rolling) { r.edit(pausedPolicy) },
		"another updater holds the lease": func(r *rolling) {
			r.loop.sharing.conditions.holder = func(context.Context, time.Time) (string, error) { return "other", nil }
		},
	} {
		r := newSharing(t, 3, on())
		require.Equal(t, "800m 800m 800m", r.turn(0), name)
		obscure(r)
		r.arrive("web-1-3")
		for minute := range 12 {
			require.Equal(t, "800m 800m 800m 1400m", r.turn(time.Duration(minute+1)*time.Minute), name)
		}
		require.NotContains(t, r.marks()[:3], "", name)
	}
}

func TestWhereNothingIsMoved(t *testing.T) {
	older := func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.32.9" }
	for name, c := range map[string]struct {
		config  func(*Config)
		objects []runtime.Object
		change  func(r *rolling)
		want    string // the reason of the condition
	}{
		"an old kubelet":      {objects: []runtime.Object{kubelet("n1", "8", older)}, want: "True Shares: pods that share: 0"},
		"a cordoned node":     {objects: []runtime.Object{kubelet("n1", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true })}, want: "True Shares: pods that share: 3"},
		"nothing allocatable": {objects: []runtime.Object{kubelet("n1", "8", func(n *corev1.Node) { n.Status.Allocatable = nil })}, want: "True Shares: pods that share: 0"},
		"an HPA on CPU":       {objects: []runtime.Object{hpa()}, want: "True Shares: pods that share: 0"},
		"one namespace":       {config: func(c *Config) { c.Kube.Namespace = "shop" }, want: "False NodesUnknown"},
	} {
		config := Default()
		if c.config != nil {
			c.config(config)
		}
		r := shareWith(t, config, append(append(peakingPods(3, unlimited), peaking(), on()), c.objects...)...)
		require.Equal(t, "1400m 1400m 1400m", r.turn(0), name)
		require.Equal(t, "1400m 1400m 1400m", r.turn(time.Minute), name)
		require.True(t, strings.HasPrefix(r.condition(), c.want), "%s: %s", name, r.condition())
		require.Equal(t, []string{"", "", ""}, r.marks(), name)
	}
}

// What somebody changed since the round, and another pod of that name, wait for the next one.
func TestAPodThatChangedSinceTheRoundWaits(t *testing.T) {
	r := newSharing(t, 2, on(), kubelet("n1", "8"))
	r.refuse("patch", "pods", fmt.Errorf("not now"))
	require.Equal(t, "1400m 1400m", r.turn(0))
	r.kube.ReactionChain = r.kube.ReactionChain[1:]
	r.change("web-1-0", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("1200m", "200Mi") })
	require.NoError(t, r.kube.CoreV1().Pods("shop").Delete(t.Context(), "web-1-1", metav1.DeleteOptions{}))
	pod := peakingPods(2, unlimited)[3].(*corev1.Pod)
	pod.UID = "another"
	_, err := r.kube.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	r.await("the pod", func(p *corev1.Pod) bool { return p.UID == "another" }, "web-1-1")
	require.Equal(t, "1200m 1400m", r.turn(time.Minute))
	require.EqualValues(t, 1, r.skipped("ChangedOutside"))
	require.Equal(t, "950m 950m", r.turn(5*time.Minute))
}

// A node that goes away in the middle, with its pods, leaves nothing behind.
func TestANodeThatGoesInTheMiddle(t *testing.T) {
	r := newSharing(t, 3, on())
	require.Equal(t, "800m 800m 800m", r.turn(0))
	require.NoError(t, r.kube.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { _, err := r.loop.reader.Nodes.Get("n1"); return err != nil }, time.Minute, time.Millisecond)
	for minute := range 12 {
		require.Equal(t, "800m 800m 800m", r.turn(time.Duration(minute+1)*time.Minute))
	}
	require.Equal(t, "True Shares: pods that share: 0", r.condition())
}

// A least above the share is what the pods get, and what counts in the sums of the node.
func TestMinAllowedAboveTheShare(t *testing.T) {
	vpa := peaking()
	vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MinAllowed: list("1", "0")}}}
	r := shareWith(t, Default(), append(peakingPods(3, unlimited), vpa, on())...)
	require.Equal(t, "1133m 1133m 1133m", r.turn(0), "a headroom of 0.4 for three")
}

// On one node pods of a policy that is On, and of one in DryRun, share apart: the latter take what they
// request.
func TestADryRunBesidePodsThatShare(t *testing.T) {
	dry := shared(loadlinev1alpha1.SharingDryRun, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names = []string{"pay"} })
	dry.Name = "pay"
	objects := append(peakingPods(3, unlimited), peaking(), on(), dry, kubelet("n1", "8"))
	vpa := peaking()
	vpa.Labels["loadline.dev/policy"] = "pay"
	for _, o := range append(peakingPods(2, unlimited), vpa) {
		m := o.(metav1.Object)
		m.SetNamespace("pay")
		m.SetUID(types.UID("pay-" + string(m.GetUID())))
		objects = append(objects, o)
	}
	r := shareWith(t, Default(), objects...)
	require.Equal(t, "800m 800m 800m", r.turn(0))
	require.EqualValues(t, 3, r.value("loadline_sharing_pods", "mode", "On"))
	require.EqualValues(t, 2, r.value("loadline_sharing_pods", "mode", "DryRun"))
	for _, name := range []string{"web-1-0", "web-1-1"} {
		pod, err := r.kube.CoreV1().Pods("pay").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "1400m", pod.Spec.Containers[0].Resources.Requests.Cpu().String())
	}
}

// A share under which a container restarts again and again is taken back to the peak, for a day.
func TestAShareThatDidHarmIsTakenBackToThePeak(t *testing.T) {
	r := newSharing(t, 3, on())
	require.Equal(t, "800m 800m 800m", r.turn(0))
	r.restarted("web-1-1", 1)
	require.Equal(t, "800m 800m 800m", r.turn(time.Minute))
	r.restarted("web-1-1", 2)
	require.Equal(t, "800m 1400m 800m", r.turn(2*time.Minute))
	require.Equal(t, "cpu at 2026-01-02T12:02:00Z after 2 reverted", r.marks()[1])
	require.Contains(t, strings.Join(r.told(), "\n"), "ShareReverted")
	for _, after := range []time.Duration{3 * time.Minute, 5 * time.Minute, 24 * time.Hour} {
		require.Equal(t, "1400m", strings.Fields(r.turn(after))[1], after)
	}
	r.turn(24*time.Hour + 2*time.Minute)
	require.Equal(t, "800m 800m 800m", r.turn(24*time.Hour+5*time.Minute))
}

// gone deletes a pod.
func (r *rolling) gone(name string) {
	r.t.Helper()
	require.NoError(r.t, r.kube.CoreV1().Pods("shop").Delete(r.t.Context(), name, metav1.DeleteOptions{}))
	require.Eventually(r.t, func() bool {
		_, err := r.caches.pods.Core().V1().Pods().Lister().Pods("shop").Get(name)
		return err != nil
	}, time.Minute, time.Millisecond)
}

// Harm is remembered from the pass on that sees it, also where the peak does not fit for a while; and
// the pod that it was done to grows before others do.
func TestHarmIsRememberedUntilThePeakFits(t *testing.T) {
	r := newSharing(t, 3, on(), kubelet("n1", "2400m"))
	require.Equal(t, "800m 800m 800m", r.turn(0))
	r.restarted("web-1-1", 2)
	require.Equal(t, "800m 800m 800m", r.turn(time.Minute))
	require.Equal(t, "cpu at 2026-01-02T12:01:00Z after 2 reverted", r.marks()[1])
	r.kube.ClearActions()
	require.Equal(t, "800m 800m 800m", r.turn(2*time.Minute))
	require.Empty(t, r.writes(), "it is written once")
	r.gone("web-1-2")
	require.Equal(t, "800m 1400m", r.turn(30*time.Minute), "there is room for one of them")
}

// A pod that restarts is not made still smaller while it is watched, so that harm that comes slowly is
// seen, too.
func TestAPodThatRestartedIsNotMadeSmaller(t *testing.T) {
	for name, again := range map[string]bool{"it restarts again": true, "it works": false} {
		r := newSharing(t, 3, on())
		require.Equal(t, "800m 800m 800m", r.turn(0), name)
		r.restarted("web-1-1", 1)
		r.arrive("web-1-3")
		require.Equal(t, "725m 800m 725m 725m", r.turn(5*time.Minute), name)
		require.Equal(t, "cpu at 2026-01-02T12:00:00Z after 0", r.marks()[1], name)
		require.EqualValues(t, 1, r.skipped("UnderObservation"), name)
		if again {
			r.restarted("web-1-1", 2)
			require.Equal(t, "725m 1400m 725m 725m", r.turn(9*time.Minute), name)
			continue
		}
		require.Equal(t, "725m 800m 725m 725m", r.turn(14*time.Minute), name)
		require.Equal(t, "725m 725m 725m 725m", r.turn(15*time.Minute), name)
	}
}

// Memory after a kill waits for nothing that speaks against a smaller share of CPU.
func TestMemoryAfterAKillDoesNotWaitForASmallerShareOfCPU(t *testing.T) {
	for name, hinder := range map[string]func(r *rolling){
		"nothing in the way": func(*rolling) {},
		"a cordoned node": func(r *rolling) {
			_, err := r.kube.CoreV1().Nodes().Update(r.t.Context(), kubelet("n1", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true }), metav1.UpdateOptions{})
			require.NoError(r.t, err)
			require.Eventually(r.t, func() bool {
				n, err := r.loop.reader.Nodes.Get("n1")
				return err == nil && n.Spec.Unschedulable
			}, time.Minute, time.Millisecond)
		},
		"it was changed outside": func(r *rolling) {
			r.change("web-1-1", func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("900m")
			})
		},
	} {
		r := newSharing(t, 3, on(both))
		require.Equal(t, "800m 800m 800m", r.turn(0), name)
		r.arrive("web-1-3")
		hinder(r)
		r.change("web-1-1", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(4*time.Minute), 1)}
		})
		after := 5 * time.Minute
		if name == "it was changed outside" {
			after = 4 * time.Minute
		}
		cpu := r.pod("web-1-1").Spec.Containers[0].Resources.Requests.Cpu().String()
		require.Equal(t, cpu, strings.Fields(r.turn(after))[1], name)
		require.Equal(t, "200Mi", strings.Fields(r.memory())[1], name)
	}
}

// resized are the pods that were resized, in order.
func (r *rolling) resized() (names []string) {
	for _, a := range r.kube.Actions() {
		if patch, is := a.(ktesting.PatchAction); is && a.GetSubresource() == "resize" {
			names = append(names, patch.GetName())
		}
	}
	return names
}

// What did harm is given back before anything else is moved.
func TestGivingBackGoesFirst(t *testing.T) {
	r := newSharing(t, 3, on())
	require.Equal(t, "800m 800m 800m", r.turn(0))
	r.arrive("web-1-3")
	r.restarted("web-1-2", 2)
	r.kube.ClearActions()
	require.Equal(t, "725m 725m 1400m 725m", r.turn(5*time.Minute))
	require.Equal(t, []string{"web-1-2", "web-1-3", "web-1-0", "web-1-1"}, r.resized())
}

// Pods leave a crowded node through the eviction API, and never the last one that is ready.
func TestPodsLeaveANodeOnWhichTheirBasesDoNotFit(t *testing.T) {
	config := Default()
	config.Disruption.MinReplicas = 1
	crowded := func(ready int, changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *rolling {
		n := 0
		return shareWith(t, config, append(peakingPods(4, func(p *corev1.Pod) {
			unlimited(p)
			p.Spec.Containers[0].Resources.Requests = list("500m", "200Mi")
			if n++; n > ready {
				p.Status.Conditions[0].Status = corev1.ConditionFalse
			}
		}), peaking(), on(changes...), kubelet("n1", "1"), kubelet("n2", "8"))...)
	}
	r := crowded(4, evicting)
	r.turn(0)
	require.Equal(t, []string{"web-1-0"}, r.evictions())
	require.EqualValues(t, 1, r.value("loadline_sharing_evictions_total", "mode", "On"))
	for minute := range 59 {
		r.turn(time.Duration(minute+1) * time.Minute)
	}
	require.Equal(t, []string{"web-1-0"}, r.evictions(), "one in an hour")
	require.EqualValues(t, 3, r.skipped("LeftLately"))
	r.turn(time.Hour)
	require.Len(t, r.evictions(), 2)
	require.Contains(t, strings.Join(r.told(), "\n"), "NodeCrowded")

	r = crowded(4)
	r.turn(0)
	require.Empty(t, r.evictions(), "evict is false")
	require.Contains(t, r.condition(), "True NodeOvercommitted: pods that share: 4; what its pods use nearly always is more than a node has, such as n1")

	r = crowded(4, evicting, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Method = nil })
	r.turn(0)
	require.Empty(t, r.evictions(), "the method does not evict")

	r = crowded(4, evicting, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
	})
	r.turn(0)
	require.Empty(t, r.evictions(), "outside of the schedule")
	require.EqualValues(t, 3, r.skipped("OutsideWindow"))
	r.turn(10 * time.Hour)
	require.Len(t, r.evictions(), 1, "it is open now")

	r = crowded(1, evicting)
	r.turn(0)
	require.NotContains(t, r.evictions(), "web-1-0", "the last one that is ready")
}

// Beside a node autoscaler that is accepted the pods of a node are made smaller once an hour.
func TestBesideANodeAutoscalerPodsShrinkHourly(t *testing.T) {
	r := newSharing(t, 3, on(accepting), growing())
	require.Equal(t, "800m 800m 800m", r.turn(0))
	r.arrive("web-1-3")
	require.Equal(t, "800m 800m 800m 1400m", r.turn(5*time.Minute))
	require.EqualValues(t, 4, r.skipped("ShrunkLately"))
	r.anew()
	require.Equal(t, "800m 800m 800m 1400m", r.turn(55*time.Minute))
	require.Equal(t, "725m 725m 725m 725m", r.turn(time.Hour))
}

// accepting is a policy that accepts a node autoscaler, and growing the sign of one.
func accepting(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Sharing.NodeAutoscaler = new(loadlinev1alpha1.SharingNodeAutoscalerAccept)
}

func growing() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}
}

// A mark says when pods were made smaller for an hour after a start only: later the updater knows, and
// who writes marks by hand stops nothing.
func TestAMarkWrittenByHandDoesNotStopANode(t *testing.T) {
	r := newSharing(t, 3, on(accepting), growing())
	require.Equal(t, "800m 800m 800m", r.turn(0))
	r.arrive("web-1-3")
	r.change("web-1-0", func(p *corev1.Pod) {
		p.Annotations[convert.SharedAnnotation] = "cpu at 2026-01-02T13:58:00Z after 0"
	})
	require.Equal(t, "725m 725m 725m 725m", r.turn(2*time.Hour))
	for _, p := range r.pods() {
		r.change(p.Name, func(p *corev1.Pod) {
			delete(p.Annotations, convert.SharedAnnotation)
			p.Spec.Containers[0].Resources.Requests = list("1400m", "200Mi")
		})
	}
	require.Equal(t, "1400m 1400m 1400m 1400m", r.turn(2*time.Hour+55*time.Minute), "it remembers what it did itself")
	require.Equal(t, "725m 725m 725m 725m", r.turn(3*time.Hour))
}

// A pod moves only by what is worth a write, however small it is.
func TestASmallPodIsNotMovedByMillicores(t *testing.T) {
	for has, want := range map[string]string{"20m": "20m", "30m": "13m"} {
		vpa := peaking()
		c := &vpa.Status.Recommendation.ContainerRecommendations[0]
		c.LowerBound, c.Target, c.UpperBound = list("10m", "100Mi"), list("20m", "200Mi"), list("20m", "200Mi")
		r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
			unlimited(p)
			p.Spec.Containers[0].Resources.Requests = list(has, "200Mi")
		}), vpa, on())...)
		require.Equal(t, want+" "+want+" "+want, r.turn(0), "shares are 13m")
		r.kube.ClearActions()
		r.restarted("web-1-1", 2)
		if has == "30m" {
			require.Equal(t, "13m 20m 13m", r.turn(time.Minute), "what did harm is given back all the same")
		}
	}
}

// So is memory after a kill.
func TestALittleMemoryAfterAKill(t *testing.T) {
	vpa := peaking()
	c := &vpa.Status.Recommendation.ContainerRecommendations[0]
	c.LowerBound, c.Target, c.UpperBound = list("500m", "20Mi"), list("1400m", "30Mi"), list("2", "30Mi")
	r := shareWith(t, Default(), append(peakingPods(1, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("1400m", "24Mi")
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(-time.Minute), 1)}
	}), vpa, on(both))...)
	r.turn(0)
	require.Equal(t, "30Mi", r.memory())
}

// Growth does not count as made smaller.
func TestGrowthDoesNotStopANode(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("200m", "200Mi")
	}), peaking(), on(accepting), growing())...)
	require.Equal(t, "800m 800m 800m", r.turn(0))
	require.Equal(t, []string{"cpu", "cpu", "cpu"}, r.marks())
	r.arrive("web-1-3")
	require.Equal(t, "725m 725m 725m 725m", r.turn(5*time.Minute))
}

// A change of memory, which follows its usual way, and a share of CPU are one resize.
func TestMemoryAndAShareOfCPUAreOneResize(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(2, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("1400m", "50Mi")
	}), peaking(), on(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MaxConcurrent = new(int32(0)) }))...)
	r.pass(noon)
	require.Equal(t, "950m 200Mi", r.requests("web-1-0"))
	resizes := slices.DeleteFunc(r.writes(), func(w string) bool { return w != "patch pods resize" })
	require.Len(t, resizes, 2)
	require.NotContains(t, r.pod("web-1-0").Annotations[convert.OriginalAnnotation], `"cpu":"950m"`, "the share is not judged with it")
}

// Where the two are refused together, what is not shared is given alone: nobody is evicted for a share.
func TestAShareThatIsRefusedEvictsNobody(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(2, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("1400m", "50Mi")
	}), peaking(), on(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MaxConcurrent = new(int32(0)) }))...)
	r.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		patch := a.(ktesting.PatchAction)
		if patch.GetSubresource() != "resize" || !strings.Contains(string(patch.GetPatch()), "950m") {
			return false, nil, nil
		}
		return true, nil, apierrors.NewBadRequest("no share here")
	})
	r.pass(noon)
	require.Equal(t, "1400m 200Mi", r.requests("web-1-0"))
	require.Empty(t, r.evictions())
}

// What is evicted for something else comes back at its peak, so that is what must fit.
func TestAnEvictionAsksForRoomForThePeak(t *testing.T) {
	r := newSharing(t, 3, on())
	require.Equal(t, "800m 800m 800m", r.turn(0))
	snapshot, err := r.loop.reader.Read(t.Context(), noon, func(string) {})
	require.NoError(t, err)
	r.loop.reader.Divide(t.Context(), snapshot, false, noon)
	need := snapshot.View.VPAs[0].Pods[0].Need()
	require.EqualValues(t, 800, need.Wants.Value(resources.CPU))
	require.EqualValues(t, 1400, need.Back.Value(resources.CPU))
}

// A rehearsal says what sharing would do, and writes nothing.
func TestARehearsalOfSharing(t *testing.T) {
	config := Default()
	config.DryRun = true
	r := newSharingWith(t, config)
	said := r.rehearsed()
	require.Contains(t, said, "would resize pod shop/web-1-0 (VPA deployment-web, Shared): app cpu 1400m -> 800m\n")
	require.Empty(t, r.writes())
}

func newSharingWith(t *testing.T, config *Config) *rolling {
	t.Helper()
	return shareWith(t, config, append(peakingPods(3, unlimited), peaking(), on())...)
}

// A workload shares from the age on that the flag says.
func TestTheLeastAgeOfWorkloadsThatShare(t *testing.T) {
	config := Default()
	config.SharingMinAge = 10 * time.Minute
	objects := append(peakingPods(3, unlimited), peaking(), on())
	objects[0].(*appsv1.Deployment).CreationTimestamp = metav1.NewTime(noon)
	r := shareWith(t, config, objects...)
	require.Equal(t, "1400m 1400m 1400m", r.turn(5*time.Minute))
	require.Equal(t, "800m 800m 800m", r.turn(10*time.Minute))
}

// A pod that ran out of memory that it shares gets its peak at once, in place.
func TestAPodThatRanOutOfSharedMemoryGetsItsPeak(t *testing.T) {
	r := newSharing(t, 3, on(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.Resources = []corev1.ResourceName{"memory"} }))
	memory := func() (all []string) {
		for _, p := range r.pods() {
			all = append(all, p.Spec.Containers[0].Resources.Requests.Memory().String())
		}
		return all
	}
	share := memory()[0]
	r.turn(0)
	require.NotEqual(t, share, memory()[0])
	share = memory()[0]
	require.Equal(t, []string{share, share, share}, memory())
	r.change("web-1-1", func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(time.Minute), 1)}
	})
	r.now = noon.Add(time.Minute)
	r.loop.OOMResize(t.Context(), r.now, []cache.ObjectName{cache.NewObjectName("shop", "deployment-web")})
	require.Equal(t, []string{share, "200Mi", share}, memory())
	r.caught()
	r.change("web-1-1", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
	r.turn(5 * time.Minute)
	require.Equal(t, "200Mi", memory()[1], "for five minutes it is not made smaller")
	r.turn(14 * time.Minute)
	require.Equal(t, "200Mi", memory()[1], "it restarted less than 15 minutes after it was made smaller")
	r.turn(15 * time.Minute)
	require.Equal(t, []string{share, share, share}, memory())
	require.Empty(t, r.evictions())
}

// No container is restarted for a share.
func TestAPodThatAResizeRestartsKeepsItsPeak(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
	}), peaking(), on())...)
	require.Equal(t, "1400m 1400m 1400m", r.turn(0))
	require.Equal(t, map[sharing.Reason]int{sharing.RestartsOnResize: 3}, r.shares(noon).Apart)
}

// A mark that somebody wrote by hand says that the pod shared, and no more: it grows to what is
// recommended, if that fits, and the mark goes.
func TestAMarkWrittenByHand(t *testing.T) {
	forged := func(text, cpu string, objects ...runtime.Object) *rolling {
		return shareWith(t, Default(), append(peakingPods(2, func(p *corev1.Pod) {
			unlimited(p)
			p.Annotations = map[string]string{convert.SharedAnnotation: text}
			p.Spec.Containers[0].Resources.Requests = list(cpu, "200Mi")
		}), objects...)...)
	}
	for _, text := range []string{"true", "cpu at 2026-01-02T11:59:00Z after 0", "cpu at 9999-01-02T11:59:00Z after 0 reverted"} {
		r := forged(text, "200m", peaking(), auto())
		require.Equal(t, "1400m 1400m", r.turn(0), text)
		r.turn(time.Minute)
		require.Equal(t, []string{"", ""}, r.marks(), text)
		r = forged(text, "2", peaking(), auto())
		require.Equal(t, "2 2", r.turn(0), text)
		require.Equal(t, []string{"", ""}, r.marks(), "it has no less than its peak")

		require.Equal(t, "200m 200m", forged(text, "200m", peaking(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend)).turn(0), "nothing is to be changed")
		require.Equal(t, "800m 800m", forged(text, "200m", peaking(), on(), kubelet("n1", "1600m")).turn(0), "it shares anyway")
	}
}

// What becomes of the CPU limit of a running pod.
func TestCPULimitsOfPodsThatShare(t *testing.T) {
	for limit, want := range map[loadlinev1alpha1.SharingCPULimit]string{loadlinev1alpha1.SharingCPULimitKeep: "2", loadlinev1alpha1.SharingCPULimitRemove: "2", loadlinev1alpha1.SharingCPULimitNodeAllocatable: "8"} {
		r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = list("2", "1Gi")
		}), peaking(), on(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.CPULimit = &limit }))...)
		require.Equal(t, "800m 800m 800m", r.turn(0), limit)
		has := r.pod("web-1-0").Spec.Containers[0].Resources.Limits
		require.Equal(t, want, has.Cpu().String(), limit)
		require.Equal(t, "1Gi", has.Memory().String(), limit)
		r.edit(off)
		require.Equal(t, "1400m 1400m 1400m", r.turn(5*time.Minute), limit)
		require.Equal(t, want, r.pod("web-1-0").Spec.Containers[0].Resources.Limits.Cpu().String(), "limits stay when sharing ends")
	}
}

// A pass in which all pods have their shares allocates no more than one in which they only would.
func TestAPassAllocatesNothingForAPodThatHasItsShare(t *testing.T) {
	const vpas, each = 200, 5
	allocations := func(policy *loadlinev1alpha1.SizingPolicy) float64 {
		policy.Spec.Namespaces.Names = []string{"*"}
		loop, _, c := quiet{vpas: vpas, pods: each, nodes: 20, policies: []*loadlinev1alpha1.SizingPolicy{policy}}.filled(t)
		loop.sharing.conditions, loop.sharing.capacity = c.sharingConditions(Default()), c.roomOf(Default())
		loop.sharing.conditions.client = nil
		all, err := loop.reader.VPAs.List(labels.Everything())
		require.NoError(t, err)
		for _, vpa := range all { // each has what it uses always
			one := &vpa.Status.Recommendation.ContainerRecommendations[0]
			one.LowerBound = one.Target
		}
		for range 3 {
			loop.RunOnce(t.Context(), noon)
		}
		if *policy.Spec.Sharing.Mode == loadlinev1alpha1.SharingOn {
			p, _, err := loop.look(t.Context(), noon, func(string) {})
			require.NoError(t, err)
			require.True(t, p.snapshot.HasShare("0-2"))
		}
		return testing.AllocsPerRun(5, func() { loop.RunOnce(t.Context(), noon) })
	}
	dry := allocations(shared(loadlinev1alpha1.SharingDryRun, automatic))
	require.InDelta(t, dry, allocations(on()), 50)
}

// both is a policy of which pods share CPU and memory.
func both(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Sharing.Resources = []corev1.ResourceName{"cpu", "memory"}
}

// onlyCPU is a policy of which pods share CPU.
func onlyCPU(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Sharing.Resources = []corev1.ResourceName{"cpu"}
}

// memory are the memory requests of all pods.
func (r *rolling) memory() string {
	var all []string
	for _, p := range r.pods() {
		all = append(all, p.Spec.Containers[0].Resources.Requests.Memory().String())
	}
	return strings.Join(all, " ")
}

// What pods do not share any more, while they share something else, grows to its peak: no round knows
// a share of it.
func TestAKindThatIsNotSharedAnyMoreGetsItsPeak(t *testing.T) {
	r := newSharing(t, 3, on(both))
	r.turn(0)
	require.NotContains(t, r.memory(), "200Mi")
	require.Contains(t, r.marks()[0], "cpu,memory at ")
	shares := r.memory()
	r.edit(onlyCPU)
	r.turn(time.Minute)
	require.Equal(t, shares, r.memory(), "until the next round")
	require.Equal(t, "800m 800m 800m", r.turn(5*time.Minute))
	require.Equal(t, "200Mi 200Mi 200Mi", r.memory())
	require.Equal(t, "800m 800m 800m", r.turn(6*time.Minute))
	for _, mark := range r.marks() {
		require.True(t, strings.HasPrefix(mark, "cpu at "), mark)
	}
	r.kube.ClearActions()
	require.Equal(t, "800m 800m 800m", r.turn(10*time.Minute))
	require.Empty(t, r.writes())
	require.Equal(t, "200Mi 200Mi 200Mi", r.memory())
}

// A mark that cannot be read is one of all kinds, of which the policy shares but one.
func TestAMarkThatCannotBeReadMakesNoMemorySmaller(t *testing.T) {
	for _, has := range []string{"200Mi", "50Mi"} {
		r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
			unlimited(p)
			p.Annotations = map[string]string{convert.SharedAnnotation: "true"}
			p.Spec.Containers[0].Resources.Requests = list("1400m", has)
		}), peaking(), on())...)
		r.turn(0)
		require.Equal(t, "800m 800m 800m", r.turn(time.Minute))
		require.Equal(t, "200Mi 200Mi 200Mi", r.memory())
		r.turn(2 * time.Minute)
		for _, mark := range r.marks() {
			require.NotContains(t, mark, "memory")
			require.NotEqual(t, "true", mark)
		}
	}
}
