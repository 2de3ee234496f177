package updater

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
)

func sharingOff(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing = nil }

func TestSharingOff_OnFullNodeDoesNotEvict(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy(evicting), kubelet("n1", "3"))
	r.change("web-1-2", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("200m", "200Mi") })
	require.Equal(t, "800m 800m 200m", r.runAt(0))
	require.Equal(t, "800m 800m 800m", r.runAt(time.Minute))
	r.edit(sharingOff)
	require.Equal(t, "1400m 800m 800m", r.runAt(2*time.Minute), "there is room for one")
	for minute := range 30 {
		require.Equal(t, "1400m 800m 800m", r.runAt(time.Duration(3+minute)*time.Minute))
	}
	require.Empty(t, r.evictions())
	require.Equal(t, "", r.marks()[0], "it has its peak")
	require.NotEmpty(t, r.marks()[1])
	require.EqualValues(t, 2, r.skipped("NodeFull"))
	require.Empty(t, r.condition())

	r.remove("web-1-0")
	require.Equal(t, "1400m 1400m", r.runAt(time.Hour), "there is room now")
	r.runAt(time.Hour + time.Minute)
	require.Equal(t, []string{"", ""}, r.marks())
}

func TestSharingEnd_RestoresPeak(t *testing.T) {
	for _, tc := range []struct {
		name  string
		leave func(r *rolling)
	}{
		{name: "mode Off", leave: func(r *rolling) { r.edit(sharingOff) }},
		{name: "mode DryRun", leave: func(r *rolling) {
			r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.Mode = new(loadlinev1alpha1.SharingDryRun) })
		}},
		{name: "recipe without sharing",
			leave: func(r *rolling) { r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("loadline") }) }},
		{name: "deleted policy", leave: func(r *rolling) {
			require.NoError(r.t, r.vpa.LoadlineV1alpha1().SizingPolicies().Delete(r.t.Context(), "fleet", metav1.DeleteOptions{}))
			r.awaitSkipReason(peakingVPA(), "PolicyUnknown")
		}},
		{name: "workload opted out", leave: func(r *rolling) {
			d, err := r.kube.AppsV1().Deployments("shop").Get(r.t.Context(), "web", metav1.GetOptions{})
			require.NoError(r.t, err)
			d.Annotations = map[string]string{"loadline.dev/sharing": "off"}
			_, err = r.kube.AppsV1().Deployments("shop").Update(r.t.Context(), d, metav1.UpdateOptions{})
			require.NoError(r.t, err)
			require.Eventually(r.t, func() bool { return r.caches.policies.For(peakingVPA()).SharingOptedOut }, time.Minute, time.Millisecond)
		}},
		{name: "new HorizontalPodAutoscaler", leave: func(r *rolling) {
			r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.HPA = new(loadlinev1alpha1.HPAProceed) })
			_, err := r.kube.AutoscalingV2().HorizontalPodAutoscalers("shop").Create(r.t.Context(), hpa(), metav1.CreateOptions{})
			require.NoError(r.t, err)
			list := r.caches.constraints.Autoscaling().V2().HorizontalPodAutoscalers().Informer().GetStore().List
			require.Eventually(r.t, func() bool { return len(list()) > 0 }, time.Minute, time.Millisecond)
		}},
		{name: "new node autoscaler", leave: func(r *rolling) {
			_, err := r.kube.CoreV1().ConfigMaps("kube-system").Create(r.t.Context(), autoscalerStatus(), metav1.CreateOptions{})
			require.NoError(r.t, err)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newSharing(t, 3, sharingOnPolicy())
			require.Equal(t, "800m 800m 800m", r.runAt(0))
			tc.leave(r)
			r.runAt(5 * time.Minute)
			require.Equal(t, "1400m 1400m 1400m", r.runAt(10*time.Minute))
			r.runAt(11 * time.Minute)
			require.Equal(t, []string{"", "", ""}, r.marks())
			require.Empty(t, r.evictions())
			r.kube.ClearActions()
			r.runAt(12 * time.Minute)
			require.Empty(t, r.writes())
		})
	}
}

// annotateDeployment sets an annotation on the Deployment, or removes it if the value is empty, and
// waits until known returns true.
func (r *rolling) annotateDeployment(key, value string, known func() bool) {
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

// Pods that must not be changed keep their shares. They return to the peak once sharing is off and
// changes are allowed again.
func TestSharingEnd_KeepsSharesWhileChangesAreForbidden(t *testing.T) {
	mode := func(m loadlinev1alpha1.RolloutMode) func(*rolling) {
		return func(r *rolling) { r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Mode = &m }) }
	}
	for _, tc := range []struct {
		name          string
		forbid, allow func(r *rolling)
		tooCautious   bool // reported in the condition
	}{
		{name: "Recommend", forbid: mode(loadlinev1alpha1.RolloutModeRecommend), allow: mode(loadlinev1alpha1.RolloutModeAuto),
			tooCautious: true},
		{name: "Observe", forbid: mode(loadlinev1alpha1.RolloutModeObserve), allow: mode(loadlinev1alpha1.RolloutModeAuto),
			tooCautious: true},
		{name: "skip annotation", forbid: func(r *rolling) {
			r.annotateDeployment("loadline.dev/skip", "true", func() bool { return r.caches.policies.For(peakingVPA()).Reason != "" })
		}, allow: func(r *rolling) {
			r.annotateDeployment("loadline.dev/skip", "", func() bool { return r.caches.policies.For(peakingVPA()).Reason == "" })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newSharing(t, 3, sharingOnPolicy())
			require.Equal(t, "800m 800m 800m", r.runAt(0))
			tc.forbid(r)
			require.Equal(t, "800m 800m 800m", r.runAt(5*time.Minute))
			require.Equal(t, "800m 800m 800m", r.runAt(10*time.Minute))
			if tc.tooCautious {
				require.Contains(t, r.condition(), "False ModeTooConservative")
				require.Contains(t, r.condition(),
					`pods with a share keep it: to end it, set spec.sharing.mode: "Off" first, while pods may be changed`)
			}
			r.edit(sharingOff)
			require.Equal(t, "800m 800m 800m", r.runAt(15*time.Minute))
			require.NotContains(t, r.marks(), "")
			tc.allow(r)
			r.runAt(20 * time.Minute)
			require.Equal(t, "1400m 1400m 1400m", r.runAt(21*time.Minute))
			r.runAt(22 * time.Minute)
			require.Equal(t, []string{"", "", ""}, r.marks())
		})
	}
}

func TestShareEviction_WhenBasesDoNotFit(t *testing.T) {
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
		}), peakingVPA(), sharingOnPolicy(changes...), kubelet("n1", "1"), kubelet("n2", "8"))...)
	}
	r := crowded(4, evicting)
	r.runAt(0)
	require.Equal(t, []string{"web-1-0"}, r.evictions())
	require.EqualValues(t, 1, r.value("loadline_sharing_evictions_total", "mode", "On"))
	for minute := range 59 {
		r.runAt(time.Duration(minute+1) * time.Minute)
	}
	require.Equal(t, []string{"web-1-0"}, r.evictions(), "one in an hour")
	require.EqualValues(t, 3, r.skipped("RecentlyEvicted"))
	r.runAt(time.Hour)
	require.Len(t, r.evictions(), 2)
	told := strings.Join(r.drainEvents(), "\n")
	require.Contains(t, told, "Normal EvictedPod Evicted a pod (NodeCrowded): cpu up map[loadline.dev/pod:web-1-0 loadline.dev/sizes:app cpu 500m -> 1400m")
	require.Contains(t, told, "Normal EvictedPod Evicted 1 pod of 1 workload: NodeCrowded 1")

	r = crowded(4)
	r.runAt(0)
	require.Empty(t, r.evictions(), "evict is false")
	require.Contains(t, r.condition(), "True NodeOvercommitted: pods that share: 4; the bases of the pods exceed the capacity of nodes, such as n1")

	r = crowded(4, evicting, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Method = nil })
	r.runAt(0)
	require.Empty(t, r.evictions(), "the method does not evict")

	r = crowded(4, evicting, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
	})
	r.runAt(0)
	require.Empty(t, r.evictions(), "outside of the schedule")
	require.EqualValues(t, 3, r.skipped("OutsideWindow"))
	r.runAt(10 * time.Hour)
	require.Len(t, r.evictions(), 1, "it is open now")

	r = crowded(1, evicting)
	r.runAt(0)
	require.NotContains(t, r.evictions(), "web-1-0", "the last one that is ready")
}

func TestShare_ShrinksHourlyWithNodeAutoscaler(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy(acceptNodeAutoscaler), autoscalerStatus())
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.arrive("web-1-3")
	require.Equal(t, "800m 800m 800m 1400m", r.runAt(5*time.Minute))
	require.EqualValues(t, 4, r.skipped("RecentlyShrunk"))
	r.restart()
	require.Equal(t, "800m 800m 800m 1400m", r.runAt(55*time.Minute))
	require.Equal(t, "725m 725m 725m 725m", r.runAt(time.Hour))
}

func (r *rolling) setBase(base string) {
	r.t.Helper()
	r.setBaseAndPeak(base, "1400m")
}

func (r *rolling) setBaseAndPeak(base, peak string) {
	r.t.Helper()
	vpa := peakingVPA()
	of := &vpa.Status.Recommendation.ContainerRecommendations[0]
	of.LowerBound, of.Target = list(base, "100Mi"), list(peak, "200Mi")
	_, err := r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Update(r.t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		known, err := r.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister().VerticalPodAutoscalers("shop").Get(vpa.Name)
		return err == nil && apiequality.Semantic.DeepEqual(known.Status.Recommendation, vpa.Status.Recommendation)
	}, time.Minute, time.Millisecond)
}

// Usage fluctuates, so pods shrink at most once an hour unless a new pod still has its peak. Growth
// is not delayed.
func TestShare_ShrinksHourlyWithoutDemand(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy())
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.setBase("400m")
	require.Equal(t, "800m 800m 800m", r.runAt(5*time.Minute))
	require.EqualValues(t, 3, r.skipped("RecentlyShrunk"))
	r.setBase("800m")
	require.Equal(t, "1 1 1", r.runAt(10*time.Minute))
	r.setBase("400m")
	r.restart()
	require.Equal(t, "1 1 1", r.runAt(55*time.Minute), "another updater reads it off the pods")
	require.Equal(t, "733m 733m 733m", r.runAt(time.Hour))
	r.setBase("300m")
	r.arrive("web-1-3")
	require.Equal(t, "575m 575m 575m 575m", r.runAt(65*time.Minute), "one came")
	r.setBase("200m")
	require.Equal(t, "575m 575m 575m 575m", r.runAt(70*time.Minute), "it has its share since")
}

// The revert does not wait for the hour between shrinks. None of the other pods takes the room that
// they free for it.
func TestShare_ShrinksForRevertedPod(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy(), kubelet("n1", "2900m"))
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.restarted("web-1-1", 2)
	require.Equal(t, "800m 800m 800m", r.runAt(6*time.Minute), "there are 500m, and it needs 600m")
	require.Equal(t, "750m 800m 750m", r.runAt(10*time.Minute), "1500m are left for two")
	require.Equal(t, "750m 1400m 750m", r.runAt(11*time.Minute))
}

// A small increase of the peak causes no resize, so other pods make no room for it.
func TestShare_DoesNotShrinkForSmallPeakIncrease(t *testing.T) {
	r := newSharing(t, 5, sharingOnPolicy())
	require.Equal(t, "680m 680m 680m 680m 680m", r.runAt(0))
	r.restarted("web-1-1", 2)
	require.Equal(t, "680m 1400m 680m 680m 680m", r.runAt(6*time.Minute))
	require.Equal(t, "725m 1400m 725m 725m 725m", r.runAt(10*time.Minute))
	r.setBaseAndPeak("400m", "1450m")
	require.Equal(t, "725m 1400m 725m 725m 725m", r.runAt(15*time.Minute))
	require.EqualValues(t, 4, r.skipped("RecentlyShrunk"))
}

// The hour between shrinks does not delay the resize of a pod that does not share.
func TestShare_ShrinksForDeferredResize(t *testing.T) {
	for reason, want := range map[string]string{corev1.PodReasonDeferred: "733m 733m 733m", corev1.PodReasonInfeasible: "800m 800m 800m"} {
		t.Run(reason, func(t *testing.T) { shrinkForAResize(t, reason, want) })
	}
}

// shrinkForAResize requires the sizes of sharing pods when the resize of another pod is pending for
// a reason.
func shrinkForAResize(t *testing.T, reason, want string) {
	t.Helper()
	other := peakingPods(1, unlimited)[2].(*corev1.Pod)
	other.Name, other.UID, other.Labels, other.OwnerReferences = "other", "other", map[string]string{"app": "other"}, nil
	other.Spec.Containers[0].Resources.Requests = list("300m", "100Mi")
	r := newSharing(t, 3, sharingOnPolicy(), other, kubelet("n1", "2900m"))
	shares := func(sizes string) string { return strings.Join(strings.Fields(sizes)[1:], " ") }
	require.Equal(t, "800m 800m 800m", shares(r.runAt(0)))
	r.setBase("400m")
	require.Equal(t, "800m 800m 800m", shares(r.runAt(5*time.Minute)))
	r.change("other", func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: p.Spec.Containers[0].Resources.DeepCopy()}}
		p.Spec.Containers[0].Resources.Requests = list("700m", "100Mi")
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason})
	})
	require.Equal(t, want, shares(r.runAt(10*time.Minute)))
}

// An infeasible resize takes nothing from other pods, even if a similar pod waits for room.
func TestShare_InfeasibleResizeTakesNoRoom(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy(), kubelet("n1", "2900m"))
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	for name, reason := range map[string]string{"web-1-0": corev1.PodReasonDeferred, "web-1-1": corev1.PodReasonInfeasible} {
		r.change(name, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: p.Spec.Containers[0].Resources.DeepCopy()}}
			p.Spec.Containers[0].Resources.Requests = list("1400m", "200Mi")
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason})
		})
	}
	require.Equal(t, "1400m 1400m 700m", r.runAt(5*time.Minute), "800m of the second")
}

func TestShare_GrowingContainersDoNotWait(t *testing.T) {
	two := func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
		p.Spec.Containers[1].Name = "other"
	}
	bases := func(app, other string) *vpav1.VerticalPodAutoscaler {
		vpa := peakingVPA()
		c := &vpa.Status.Recommendation.ContainerRecommendations
		*c = append(*c, *(*c)[0].DeepCopy())
		(*c)[1].ContainerName = "other"
		(*c)[0].LowerBound, (*c)[1].LowerBound = list(app, "100Mi"), list(other, "100Mi")
		return vpa
	}
	r := shareWith(t, Default(), append(peakingPods(1, two), bases("500m", "500m"), sharingOnPolicy())...)
	requests := func() (texts []string) {
		for _, c := range r.pod("web-1-0").Spec.Containers {
			texts = append(texts, c.Resources.Requests.Cpu().String())
		}
		return texts
	}
	r.runAt(0)
	require.Equal(t, []string{"950m", "950m"}, requests())
	vpa := bases("300m", "1")
	vpa.Status.Recommendation.ContainerRecommendations[0].Target = list("600m", "200Mi")
	_, err := r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Update(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		known, err := r.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister().VerticalPodAutoscalers("shop").Get(vpa.Name)
		return err == nil && apiequality.Semantic.DeepEqual(known.Status.Recommendation, vpa.Status.Recommendation)
	}, time.Minute, time.Millisecond)
	r.runAt(5 * time.Minute)
	require.Equal(t, []string{"950m", "1228m"}, requests(), "pods were made smaller five minutes ago")
	r.runAt(time.Hour)
	require.Equal(t, []string{"471m", "1228m"}, requests())
}

// acceptNodeAutoscaler accepts a node autoscaler, and autoscalerStatus shows that there is one.
func acceptNodeAutoscaler(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Sharing.NodeAutoscaler = new(loadlinev1alpha1.SharingNodeAutoscalerAccept)
}

func autoscalerStatus() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}
}

// Marks limit shrinking only during the first hour after a start. Later the updater uses its own
// state.
func TestShareMark_ForgedDoesNotBlockNode(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy(acceptNodeAutoscaler), autoscalerStatus())
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	r.arrive("web-1-3")
	r.change("web-1-0", func(p *corev1.Pod) {
		p.Annotations[convert.SharedAnnotation] = "cpu at 2026-01-02T13:58:00Z after 0"
	})
	require.Equal(t, "725m 725m 725m 725m", r.runAt(2*time.Hour))
	for _, p := range r.pods() {
		r.change(p.Name, func(p *corev1.Pod) {
			delete(p.Annotations, convert.SharedAnnotation)
			p.Spec.Containers[0].Resources.Requests = list("1400m", "200Mi")
		})
	}
	require.Equal(t, "1400m 1400m 1400m 1400m", r.runAt(2*time.Hour+55*time.Minute), "it remembers what it did itself")
	require.Equal(t, "725m 725m 725m 725m", r.runAt(3*time.Hour))
}

func TestShareMark_WithoutPolicyDoesNotBlockNode(t *testing.T) {
	for _, person := range []bool{false, true} {
		objects := append(peakingPods(1, func(p *corev1.Pod) {
			unlimited(p)
			p.Annotations = map[string]string{convert.SharedAnnotation: "cpu at 2026-01-02T11:58:00Z after 0"}
		}), peakingVPA())
		for i, o := range objects {
			m, err := meta.Accessor(o)
			require.NoError(t, err)
			m.SetNamespace("mine")
			m.SetUID(types.UID(fmt.Sprintf("uid-mine-%d", i)))
			if vpa, is := o.(*vpav1.VerticalPodAutoscaler); is && person {
				vpa.Labels, vpa.Name, vpa.Spec.UpdatePolicy = nil, "mine", &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeInPlace)}
			}
		}
		r := newSharing(t, 3, sharingOnPolicy(acceptNodeAutoscaler), append(objects, autoscalerStatus())...)
		require.Equal(t, "800m 800m 800m", r.runAt(0), "of a person: %t", person)
	}
}

func TestShare_IgnoresSmallDifferences(t *testing.T) {
	for _, tc := range []struct{ name, has, want string }{
		{name: "small difference", has: "20m", want: "20m"},
		{name: "large difference", has: "30m", want: "13m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vpa := peakingVPA()
			c := &vpa.Status.Recommendation.ContainerRecommendations[0]
			c.LowerBound, c.Target, c.UpperBound = list("10m", "100Mi"), list("20m", "200Mi"), list("20m", "200Mi")
			r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
				unlimited(p)
				p.Spec.Containers[0].Resources.Requests = list(tc.has, "200Mi")
			}), vpa, sharingOnPolicy())...)
			require.Equal(t, tc.want+" "+tc.want+" "+tc.want, r.runAt(0), "shares are 13m")
			r.kube.ClearActions()
			r.restarted("web-1-1", 2)
			if tc.has == "30m" {
				require.Equal(t, "13m 20m 13m", r.runAt(time.Minute), "what did harm is given back all the same")
			}
		})
	}
}

func TestShare_GrowthDoesNotDelayShrinking(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(3, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("200m", "200Mi")
	}), peakingVPA(), sharingOnPolicy(acceptNodeAutoscaler), autoscalerStatus())...)
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	require.Equal(t, []string{"cpu", "cpu", "cpu"}, r.marks())
	r.arrive("web-1-3")
	require.Equal(t, "725m 725m 725m 725m", r.runAt(5*time.Minute))
}

// If the combined resize is refused, the unshared resources are resized alone. A share causes no
// eviction.
func TestShare_RefusalDoesNotEvict(t *testing.T) {
	r := shareWith(t, Default(), append(peakingPods(2, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("1400m", "50Mi")
	}), peakingVPA(), sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MaxConcurrent = new(int32(0)) }))...)
	r.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		patch := a.(ktesting.PatchAction)
		if patch.GetSubresource() != "resize" || !strings.Contains(string(patch.GetPatch()), "950m") {
			return false, nil, nil
		}
		return true, nil, apierrors.NewBadRequest("no share here")
	})
	r.runOnce(noon)
	require.Equal(t, "1400m 200Mi", r.requests("web-1-0"))
	require.Empty(t, r.evictions())
}

// A pod evicted for another reason comes back at its peak, so the peak must fit.
func TestEviction_NeedsRoomForPeak(t *testing.T) {
	r := newSharing(t, 3, sharingOnPolicy())
	require.Equal(t, "800m 800m 800m", r.runAt(0))
	it, err := r.loop.read(t.Context(), noon, func(string) {})
	require.NoError(t, err)
	r.loop.shareRounds.Sharing.SetShares(t.Context(), it.input(), &it.view, false, noon)
	need := it.view.VPAs[0].Pods[0].Need()
	require.EqualValues(t, 800, need.After.Value(resources.CPU))
	require.EqualValues(t, 1400, need.NewPod.Value(resources.CPU))
}
