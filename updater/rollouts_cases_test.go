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
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

// canaryOf returns a policy that changes a percentage of the pods at once.
func canaryOf(percentage int32, autoPromote bool) *loadlinev1alpha1.SizingPolicy {
	return sizingPolicy(loadlinev1alpha1.RolloutModeCanary, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(percentage), AutoPromote: new(autoPromote)}
		s.Rollout.MaxConcurrent = new(int32(0))
	})
}

func autoPolicy(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	return sizingPolicy(loadlinev1alpha1.RolloutModeAuto, changes...)
}

// newPromoted returns four pods in phase FullRollout, two of them unchanged.
func newPromoted(t *testing.T) *rolling {
	t.Helper()
	r := newRolling(t, 4, sizingPolicy(loadlinev1alpha1.RolloutModeCanary, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(25)), AutoPromote: new(true)}
		s.Rollout.Cooldown = &metav1.Duration{}
	}))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.judge(5 * time.Minute)
	require.Equal(t, []string{"web-1-1"}, r.at(6*time.Minute))
	r.judge(11 * time.Minute)
	require.Equal(t, loadlinev1alpha1.RolloutPhaseFullRollout, r.record().Phase)
	return r
}

// One target is one round with one cooldown, however long its changes take.
func TestRollout_HundredPodsAreOneRound(t *testing.T) {
	oneByOne := canaryOf(10, false)
	oneByOne.Spec.Rollout.MaxConcurrent = nil // 1
	for phase, policy := range map[loadlinev1alpha1.RolloutPhase]*loadlinev1alpha1.SizingPolicy{"": autoPolicy(), loadlinev1alpha1.RolloutPhaseFullRollout: oneByOne} {
		r := newRolling(t, 100, policy, &loadlinev1alpha1.SizingRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web"}}},
			Status:     loadlinev1alpha1.SizingRecordStatus{Mode: *policy.Spec.Rollout.Mode, Phase: phase, PolicyHash: convert.RolloutSettings(policy).Hash},
		})
		last := time.Duration(0)
		for range 100 {
			require.Len(t, r.at(last), 1)
			r.judge(last + 5*time.Minute)
			r.drainEvents()
			last += 6 * time.Minute
		}
		require.Empty(t, r.at(last))
		require.Equal(t, strings.TrimSpace(strings.Repeat("50m ", 100)), r.sizes())
		s := r.record()
		require.Equal(t, phase, s.Phase)
		require.Len(t, s.Rounds, 1, "one target is one round")
		require.EqualValues(t, 100, s.Rounds[0].Pods)
		require.Equal(t, loadlinev1alpha1.RoundSuccess, s.Rounds[0].Outcome)
		require.Equal(t, noon.Add(last+time.Hour), s.CooldownUntil.UTC(), "one cooldown")
		require.Zero(t, s.ConsecutiveReverts)
		require.Empty(t, r.at(last+2*time.Hour), "it has ended")
		require.Equal(t, s, r.record())
	}
}

func TestCanary_HarmOnAllMembersIsOneRevertedRound(t *testing.T) {
	r := newRolling(t, 10, canaryOf(50, false))
	require.Len(t, r.at(0), 5)
	for i := range 5 {
		r.restarted(fmt.Sprintf("web-1-%d", i), 2)
		r.judge(time.Duration(2+i/2) * time.Minute)
		require.Empty(t, r.at(time.Duration(2+i/2)*time.Minute))
	}
	require.Equal(t, strings.TrimSpace(strings.Repeat("100m ", 10)), r.sizes())
	require.Equal(t, 5, r.reverts())
	s := r.record()
	require.Len(t, s.Rounds, 1)
	require.EqualValues(t, 1, s.ConsecutiveReverts)
	require.Equal(t, noon.Add(122*time.Minute), s.CooldownUntil.UTC(), "from the first one on")
	require.False(t, slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == "Degraded" }))
	require.Equal(t, loadlinev1alpha1.RolloutPhaseCanary, s.Phase)
}

// The recommender does not know of the revert and recommends the same or less again.
func TestRevert_BlocksSameOrLowerTarget(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.judge(time.Minute)
	for day := 1; day < 7; day++ {
		after := time.Duration(day) * 24 * time.Hour
		r.recommend([]string{"50m", "30m", "53m"}[day%3], []string{"50Mi", "30Mi", "53Mi"}[day%3])
		require.Empty(t, r.at(after), day)
		require.Equal(t, 2, r.skipped("RevertBackoff"))
	}
	require.Equal(t, "100m 100m", r.sizes())
	r.recommend("80m", "80Mi")
	require.Equal(t, []string{"web-1-0"}, r.at(6*24*time.Hour+time.Hour), "more than what did harm")
	require.Equal(t, "80m 80Mi", r.requests("web-1-0"))
}

func TestRevert_OfCPUKeepsRaisedMemory(t *testing.T) {
	vpa := lowering(generatedVPA())
	one := &vpa.Status.Recommendation.ContainerRecommendations[0]
	one.LowerBound, one.Target, one.UpperBound = list("40m", "150Mi"), list("50m", "200Mi"), list("60m", "300Mi")
	r := roll(t, Default(), append(deployment(2, nil), vpa, autoPolicy(), healthy("n1"))...)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	require.Equal(t, "50m 200Mi", r.requests("web-1-0"))
	r.restarted("web-1-0", 2)
	r.judge(2 * time.Minute)
	require.Equal(t, "100m 200Mi", r.requests("web-1-0"))
	require.Equal(t, "400Mi", r.pod("web-1-0").Spec.Containers[0].Resources.Limits.Memory().String())
	s := r.record()
	require.Len(t, s.Reverted, 1)
	require.Contains(t, s.Reverted[0].Requests, corev1.ResourceCPU)
	require.NotContains(t, s.Reverted[0].Requests, corev1.ResourceMemory)
}

func killedAt(name string, at time.Time, times int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, RestartCount: times, LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", StartedAt: metav1.NewTime(at.Add(-time.Hour)), FinishedAt: metav1.NewTime(at)}}}
}

func TestHarm_IgnoresUnchangedSidecar(t *testing.T) {
	pods := deployment(2, func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: list("10m", "10Mi")}})
	})
	r := roll(t, Default(), append(pods, lowering(generatedVPA()), autoPolicy(), healthy("n1"))...)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.change("web-1-0", func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app"}, killedAt("proxy", noon.Add(time.Minute), 7)}
	})
	r.judge(2 * time.Minute)
	require.Equal(t, []string{"web-1-0"}, r.noted())
	r.judge(5 * time.Minute)
	require.Empty(t, r.noted())
	require.Equal(t, "50m 100m", r.sizes())
	require.Zero(t, r.reverts())
	require.Equal(t, "app", r.record().Kept[0].Name)
}

func TestHarm_OOMKillRevertsImmediately(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.change("web-1-0", func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon, 1)} })
	r.judge(time.Minute)
	require.Equal(t, "50m 50Mi", r.requests("web-1-0"), "it was killed before")
	r.change("web-1-0", func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(time.Second), 1)}
	})
	r.judge(time.Minute)
	require.Equal(t, "100m 100Mi", r.requests("web-1-0"))
	require.Equal(t, "OOMKilled", r.record().Rounds[0].Reason)
}

// Pods on a lost node are unready for another reason.
func TestHarm_IgnoresUnreadyPodsOnLostNode(t *testing.T) {
	for _, tc := range []struct {
		name string
		node corev1.ConditionStatus
		size string
	}{
		{name: "ready node", node: corev1.ConditionTrue, size: "100m 100m"},
		{name: "unreachable node", node: corev1.ConditionUnknown, size: "50m 100m"},
		{name: "unready node", node: corev1.ConditionFalse, size: "50m 100m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 2, autoPolicy())
			require.Equal(t, []string{"web-1-0"}, r.at(0))
			n1 := healthy("n1")
			n1.Status.Conditions[0].Status = tc.node
			_, err := r.kube.CoreV1().Nodes().Update(t.Context(), n1, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				known, err := r.caches.constraints.Core().V1().Nodes().Lister().Get("n1")
				return err == nil && known.Status.Conditions[0].Status == tc.node
			}, time.Minute, time.Millisecond)
			r.change("web-1-0", func(p *corev1.Pod) {
				ready := &p.Status.Conditions[0]
				ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(noon.Add(time.Minute))
			})
			r.judge(4 * time.Minute)
			require.Equal(t, "50m 100m", r.sizes(), "not before the period ends")
			r.judge(5 * time.Minute)
			require.Empty(t, r.noted())
			require.Equal(t, tc.size, r.sizes())
		})
	}
}

func TestFullRollout_SurvivesPolicyEdits(t *testing.T) {
	never := &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "03:00", End: "04:00"}}}
	for _, tc := range []struct {
		name       string
		edit, undo func(*loadlinev1alpha1.SizingPolicySpec)
		reason     string
	}{
		{name: "paused", edit: pausedPolicy, undo: func(s *loadlinev1alpha1.SizingPolicySpec) { s.Paused = nil }, reason: "PolicyPaused"},
		{name: "schedule", edit: func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Schedule = never },
			undo: func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Schedule = nil }, reason: "OutsideWindow"},
		{name: "excluded namespace", edit: func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Exclude = []string{"shop"} },
			undo: func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Exclude = nil }, reason: "PolicyUnknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newPromoted(t)
			r.edit(tc.edit)
			require.Empty(t, r.at(12*time.Minute))
			require.Positive(t, r.skipped(tc.reason))
			require.Equal(t, loadlinev1alpha1.RolloutPhaseFullRollout, r.record().Phase)
			r.edit(tc.undo)
			require.Equal(t, []string{"web-1-2"}, r.at(13*time.Minute))
			require.Equal(t, loadlinev1alpha1.RolloutPhaseFullRollout, r.record().Phase)
		})
	}
	r := newPromoted(t)
	r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("loadline:cpu=tracking") })
	r.at(12 * time.Minute)
	require.Equal(t, loadlinev1alpha1.RolloutPhaseCanary, r.record().Phase, "what is recommended rests on it")
}

// pending simulates a node that has not applied the last resize. The container keeps its previous
// resources.
func (r *rolling) pending(name, reason string) {
	r.t.Helper()
	r.change(name, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &corev1.ResourceRequirements{
			Requests: list("100m", "100Mi"), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("200Mi")}}}}
		p.Status.Conditions = p.Status.Conditions[:1]
		switch reason {
		case corev1.PodReasonError:
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, Reason: reason})
		case "":
		default:
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason})
		}
	})
}

// acted simulates a node that has applied the resize.
func (r *rolling) acted(name string, restarts int32) {
	r.t.Helper()
	r.change(name, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: restarts, Resources: p.Spec.Containers[0].Resources.DeepCopy()}}
		p.Status.Conditions = p.Status.Conditions[:1]
	})
}

func TestObservation_StartsWhenDeferredResizeIsApplied(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.pending("web-1-0", corev1.PodReasonDeferred)
	r.judge(time.Minute)
	require.Equal(t, "2026-01-02T12:00:00Z deferred", r.pod("web-1-0").Annotations[convert.ResizedAtAnnotation])
	r.judge(26 * time.Hour)
	require.Equal(t, "2026-01-02T12:00:00Z deferred", r.pod("web-1-0").Annotations[convert.ResizedAtAnnotation], "it waits as long as it takes")
	r.acted("web-1-0", 0)
	r.judge(27 * time.Hour)
	require.Equal(t, "2026-01-03T15:00:00Z", r.pod("web-1-0").Annotations[convert.ResizedAtAnnotation])
	r.acted("web-1-0", 2)
	r.judge(27*time.Hour + 4*time.Minute)
	require.Equal(t, "100m 100Mi", r.requests("web-1-0"))
	require.Zero(t, r.reverts(), "the node has not acted yet")
	r.acted("web-1-0", 2)
	r.judge(27*time.Hour + 5*time.Minute)
	require.Equal(t, 1, r.reverts())
	require.Empty(t, r.noted())
}

func TestRecord_ReportsMissingPrometheus(t *testing.T) {
	missing := func(r *rolling) bool {
		return slices.ContainsFunc(r.record().Conditions, func(c metav1.Condition) bool {
			return c.Type == "EvidenceMissing" && c.Status == metav1.ConditionTrue && c.Reason == "NoPrometheus"
		})
	}
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	r.at(0)
	require.True(t, missing(r))
	r.judge(5 * time.Minute)
	r.at(6 * time.Minute)
	r.judge(12 * time.Minute)
	r.at(13 * time.Minute)
	require.Len(t, r.record().Rounds, 1)
	require.NotEmpty(t, r.record().Rounds[0].Outcome, "the workload rests")
	require.True(t, missing(r))

	r.config.Evidence.Address = "http://prometheus.example"
	r.restart()
	r.at(14 * time.Minute)
	require.False(t, missing(r), "it can be asked now")

	off := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Safety = &loadlinev1alpha1.Safety{Throttle: new("0"), Pressure: new("0")}
	}))
	off.at(0)
	require.False(t, missing(off), "nobody wants to know")
}

// An observation period shorter than the CPU pressure window is extended until the window is
// complete.
func TestObservation_WaitsForFullPressureWindow(t *testing.T) {
	config := Default()
	config.Evidence.Address = "http://127.0.0.1:1"
	r := roll(t, config, append(deployment(2, nil), lowering(generatedVPA()), autoPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Safety = &loadlinev1alpha1.Safety{ObservationPeriod: &metav1.Duration{Duration: 89 * time.Second}}
	}), healthy("n1"))...)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	for _, look := range []struct{ after, wait time.Duration }{{0, 89 * time.Second}, {89 * time.Second, 211 * time.Second}, {5 * time.Minute, 30 * time.Second}} {
		wait, err := r.sync("web-1-0", look.after)
		require.NoError(t, err)
		require.Equal(t, look.wait, wait)
	}
}

func TestResize_WithdrawsInfeasible(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.drainEvents()
	r.pending("web-1-0", corev1.PodReasonInfeasible)
	r.judge(time.Minute)
	require.Equal(t, "100m 100Mi", r.requests("web-1-0"))
	require.Empty(t, r.noted())
	require.Zero(t, r.reverts())
	told := r.drainEvents()
	require.Len(t, told, 2)
	require.Contains(t, told[0], "Warning ResizeWithdrawn Resize withdrawn, its node can never grant it map[loadline.dev/pod:web-1-0 loadline.dev/sizes:app cpu 50m -> 100m")
	s := r.record()
	require.Equal(t, loadlinev1alpha1.RoundOutcome("Failed"), s.Rounds[0].SoFar)
	require.Zero(t, s.ConsecutiveReverts)
	require.Empty(t, s.Kept)
}

func TestResize_FailsAfterOneHour(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.drainEvents()
	r.pending("web-1-0", corev1.PodReasonError)
	r.judge(30 * time.Minute)
	require.Equal(t, []string{"web-1-0"}, r.noted())
	r.judge(time.Hour)
	require.Empty(t, r.noted())
	require.Contains(t, r.drainEvents()[0], "Warning ResizeFailed Resize not finished by its node within an hour")
	require.Equal(t, loadlinev1alpha1.RoundOutcome("Failed"), r.record().Rounds[0].SoFar)
}

// remove deletes a pod and waits for the informer cache.
func (r *rolling) remove(name string) {
	r.t.Helper()
	require.NoError(r.t, r.kube.CoreV1().Pods("shop").Delete(r.t.Context(), name, metav1.DeleteOptions{}))
	require.Eventually(r.t, func() bool {
		_, err := r.caches.pods.Core().V1().Pods().Lister().Pods("shop").Get(name)
		return err != nil
	}, time.Minute, time.Millisecond)
}

func TestCanary_ReplacesDeletedMember(t *testing.T) {
	r := newRolling(t, 4, canaryOf(50, false))
	require.Equal(t, []string{"web-1-0", "web-1-1"}, r.at(0))
	r.remove("web-1-0")
	_, err := r.sync("web-1-0", time.Minute)
	require.NoError(t, err)
	require.Empty(t, r.at(time.Minute), "half of three is one")
	fresh := deployment(5, nil)[6].(*corev1.Pod)
	_, err = r.kube.CoreV1().Pods("shop").Create(t.Context(), fresh, metav1.CreateOptions{})
	require.NoError(t, err)
	r.await("the new pod", func(*corev1.Pod) bool { return true }, fresh.Name)
	require.Equal(t, []string{"web-1-2"}, r.at(2*time.Minute))
	var members []string
	for _, m := range r.record().CanaryMembers {
		members = append(members, string(m.UID))
	}
	require.Equal(t, []string{"uid-1", "uid-2"}, members)
	r.judge(7 * time.Minute)
	require.Empty(t, r.at(8*time.Minute))
	require.Equal(t, "50m 50m 100m 100m", r.sizes())
	require.Equal(t, loadlinev1alpha1.RoundSuccess, r.record().Rounds[0].Outcome)
}

func TestCanary_DoesNotGrowOnScaleUp(t *testing.T) {
	r := newRolling(t, 4, canaryOf(50, false))
	require.Equal(t, []string{"web-1-0", "web-1-1"}, r.at(0))
	r.scale(12)
	require.Empty(t, r.at(time.Minute))
	require.Equal(t, 10, r.skipped("NotInCanary"))
	r.judge(5 * time.Minute)
	require.Empty(t, r.at(6*time.Minute))
	require.Empty(t, r.at(2*time.Hour))
	s := r.record()
	require.Len(t, s.CanaryMembers, 2)
	require.Equal(t, loadlinev1alpha1.RolloutPhaseCanary, s.Phase)
}

func TestCanary_SurvivesScaleDown(t *testing.T) {
	r := newRolling(t, 4, canaryOf(50, true))
	require.Equal(t, []string{"web-1-0", "web-1-1"}, r.at(0))
	for _, gone := range []string{"web-1-1", "web-1-2", "web-1-3"} {
		r.remove(gone)
	}
	require.Empty(t, r.at(time.Minute))
	r.judge(5 * time.Minute)
	require.Empty(t, r.at(6*time.Minute))
	require.Equal(t, loadlinev1alpha1.RoundSuccess, r.record().Rounds[0].Outcome, "to one")
	s := r.record()
	r.remove("web-1-0")
	for minute := 7; minute < 10; minute++ {
		require.Empty(t, r.at(time.Duration(minute)*time.Minute))
	}
	require.Equal(t, s, r.record(), "to none: nothing is begun, and nothing forgotten")
}

// The iteration that applies the higher recommendation may run before the observer.
func TestOOMKill_CountsAsHarmDespiteMemoryIncrease(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.change("web-1-0", func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(time.Minute), 1)}
	})
	r.recommend("50m", "200Mi")
	r.now = noon.Add(2 * time.Minute)
	r.loop.RunOOM(t.Context(), r.now, []cache.ObjectName{cache.NewObjectName("shop", "deployment-web")})
	r.settled("web-1-0")
	r.judge(2*time.Minute + 5*time.Second)
	require.Empty(t, r.noted())
	require.Equal(t, 1, r.reverts())
	require.Equal(t, "OOMKilled", r.record().Rounds[0].Reason)
	require.Empty(t, r.at(3*time.Minute))
	require.Equal(t, "100m 200Mi", r.requests("web-1-0"), "and it gets what it needs")
}

// A kill without a memory cut is not harm, so memory is raised at once.
func TestOOMKill_UnrelatedToChangeRaisesMemory(t *testing.T) {
	vpa := lowering(generatedVPA())
	one := &vpa.Status.Recommendation.ContainerRecommendations[0]
	one.LowerBound, one.Target, one.UpperBound = list("40m", "100Mi"), list("50m", "100Mi"), list("60m", "100Mi")
	r := roll(t, Default(), append(deployment(2, nil), vpa, autoPolicy(), healthy("n1"))...)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.change("web-1-0", func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{killedAt("app", noon.Add(time.Minute), 1)}
	})
	r.recommend("50m", "200Mi")
	r.now = noon.Add(2 * time.Minute)
	r.loop.RunOOM(t.Context(), r.now, []cache.ObjectName{cache.NewObjectName("shop", "deployment-web")})
	r.settled("web-1-0")
	require.Equal(t, "50m 200Mi", r.requests("web-1-0"))
	r.judge(2*time.Minute + 5*time.Second)
	require.Equal(t, []string{"web-1-0"}, r.noted(), "what it lowered before goes on to be observed")
	require.Contains(t, r.pod("web-1-0").Annotations[convert.OriginalAnnotation], `"cpu":"100m"`)
	require.Zero(t, r.reverts())
}

// In mode Inherit the VPA decides about changes, but only after the last one is judged.
func TestUserVPA_WaitsForVerdictOnLastChange(t *testing.T) {
	policy := sizingPolicy(loadlinev1alpha1.RolloutModeInherit, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Safety = &loadlinev1alpha1.Safety{AutoRevert: new(true)}
	})
	config := Default()
	config.Disruption.FreeResizes = true
	r := roll(t, config, append(deployment(2, nil), loweringVPA(vpav1.UpdateModeInPlaceOrRecreate), policy, healthy("n1"))...)
	require.Equal(t, []string{"web-1-0", "web-1-1"}, r.at(0))
	r.restarted("web-1-0", 2)
	vpa := loweringVPA(vpav1.UpdateModeInPlaceOrRecreate)
	one := &vpa.Status.Recommendation.ContainerRecommendations[0]
	one.LowerBound, one.Target, one.UpperBound = list("20m", "20Mi"), list("20m", "20Mi"), list("20m", "20Mi")
	_, err := r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Update(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		known, err := r.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister().VerticalPodAutoscalers("shop").Get(vpa.Name)
		return err == nil && known.Status.Recommendation.ContainerRecommendations[0].Target.Cpu().MilliValue() == 20
	}, time.Minute, time.Millisecond)
	require.Equal(t, []string{"web-1-1"}, r.at(time.Minute))
	require.Equal(t, "50m 50Mi", r.requests("web-1-0"))
	_, err = r.sync("web-1-0", 2*time.Minute)
	require.NoError(t, err)
	require.Equal(t, "100m 100Mi", r.requests("web-1-0"))
}
