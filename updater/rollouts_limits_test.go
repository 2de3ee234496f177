package updater

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/updater/records"
)

func inPlaceOrRecreate(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.Method = new(loadlinev1alpha1.RolloutMethodInPlaceOrRecreate)
}

// loweringVPA returns a user VPA that lowers the pods.
func loweringVPA(mode vpav1.UpdateMode) *vpav1.VerticalPodAutoscaler {
	return lowering(autoscaler(mode))
}

func TestRecommendMode_WritesNoRecord(t *testing.T) {
	r := roll(t, Default(), append(deployment(3, nil), loweringVPA(vpav1.UpdateModeInPlaceOrRecreate), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend), healthy("n1"))...)
	for hour := range 3 {
		require.Empty(t, r.at(time.Duration(hour)*time.Hour))
	}
	require.Equal(t, 3, r.skipped("RecommendOnly"))
	require.Zero(t, r.records())
	require.Empty(t, r.writes())
	r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeAuto) })
	require.Equal(t, []string{"web-1-0"}, r.at(3*time.Hour))
	require.Equal(t, 1, r.records())
}

// Memory after an OOM kill belongs to no round and is not judged.
func TestOOMKill_HeldPodGetsOnlyMemory(t *testing.T) {
	grow := func() *vpav1.VerticalPodAutoscaler {
		vpa := generatedVPA()
		one := &vpa.Status.Recommendation.ContainerRecommendations[0]
		one.LowerBound, one.Target, one.UpperBound = list("40m", "150Mi"), list("50m", "200Mi"), list("60m", "300Mi")
		return vpa
	}
	made := []cache.ObjectName{cache.NewObjectName("shop", "deployment-web")}

	r := roll(t, Default(), append(deployment(4, nil), grow(), canaryOf(25, false), healthy("n1"))...)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	before := r.record()
	r.change("web-1-3", killed)
	r.loop.RunOOM(t.Context(), noon.Add(time.Minute), made)
	require.Equal(t, "100m 200Mi", r.requests("web-1-3"), "NotInCanary")
	require.Equal(t, []string{"web-1-0"}, r.noted())
	require.Equal(t, before, r.record())

	r = roll(t, Default(), append(deployment(4, nil), grow(), sizingPolicy(loadlinev1alpha1.RolloutModeOneShot), healthy("n1"))...)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.judge(5 * time.Minute)
	require.Empty(t, r.at(6*time.Minute))
	require.Equal(t, 3, r.skipped("CoolingDown"))
	before = r.record()
	r.change("web-1-3", killed)
	require.Empty(t, r.at(7*time.Minute))
	require.Equal(t, "100m 200Mi", r.requests("web-1-3"), "CoolingDown, in a pass")
	require.Empty(t, r.noted())
	require.Equal(t, before, r.record())
	require.Equal(t, 2, r.skipped("CoolingDown"))
}

func TestSchedule_BlocksChangesButNotReverts(t *testing.T) {
	r := newRolling(t, 2, autoPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "12:00", End: "12:01"}}}
	}))
	require.Empty(t, r.at(-time.Minute))
	require.Equal(t, 2, r.skipped("OutsideWindow"))
	require.Zero(t, r.records(), "nothing was changed")
	require.Contains(t, r.drainEvents(), "Normal ScheduleSkipped Pods are not changed outside of the schedule of SizingPolicy fleet; it opens 2026-01-02T12:00:00Z")
	require.Empty(t, r.at(-30*time.Second))
	require.Empty(t, r.drainEvents(), "once an hour")
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.judge(2 * time.Minute)
	require.Equal(t, "100m 100m", r.sizes())
	require.Equal(t, 1, r.reverts())
}

func TestUserVPA_ActionsByModeAndPolicy(t *testing.T) {
	for _, tc := range []struct {
		name   string
		own    vpav1.UpdateMode
		policy *loadlinev1alpha1.SizingPolicy
		acts   string // action on the first pod
		reason string
	}{
		{name: "Recreate, Auto", own: vpav1.UpdateModeRecreate, policy: autoPolicy(), reason: "EvictionNotAllowed"},
		{name: "Recreate, OneShot with eviction", own: vpav1.UpdateModeRecreate,
			policy: sizingPolicy(loadlinev1alpha1.RolloutModeOneShot, inPlaceOrRecreate), reason: "EvictionNotAllowed"},
		{name: "Recreate, Canary", own: vpav1.UpdateModeRecreate, policy: canaryOf(50, false), reason: "EvictionNotAllowed"},
		{name: "Recreate, Auto with eviction", own: vpav1.UpdateModeRecreate, policy: autoPolicy(inPlaceOrRecreate), acts: "evict"},
		{name: "InPlaceOrRecreate, Auto", own: vpav1.UpdateModeInPlaceOrRecreate, policy: autoPolicy(), acts: "resize"},
		{name: "InPlaceOrRecreate, Auto with eviction", own: vpav1.UpdateModeInPlaceOrRecreate, policy: autoPolicy(inPlaceOrRecreate),
			acts: "resize"},
		{name: "InPlace, Auto", own: vpav1.UpdateModeInPlace, policy: autoPolicy(), reason: "ModeNotEnabled"},
		{name: "InPlace, Auto with eviction", own: vpav1.UpdateModeInPlace, policy: autoPolicy(inPlaceOrRecreate),
			reason: "ModeNotEnabled"},
		{name: "Off, Auto", own: vpav1.UpdateModeOff, policy: autoPolicy()},
		{name: "Initial, Auto with eviction", own: vpav1.UpdateModeInitial, policy: autoPolicy(inPlaceOrRecreate)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := roll(t, Default(), append(deployment(4, nil), loweringVPA(tc.own), tc.policy, healthy("n1"))...)
			changed := r.at(0)
			if tc.reason != "" {
				require.Positive(t, r.skipped(tc.reason))
			}
			require.Equal(t, tc.acts == "resize", len(changed) == 1)
			if tc.acts == "evict" {
				require.Equal(t, []string{"web-1-0"}, r.evictions())
				require.EqualValues(t, 1, len(r.record().Rounds))
				return
			}
			require.Empty(t, r.evictions())
			if tc.acts == "" {
				require.Zero(t, r.records())
				require.Empty(t, r.noted())
			}
		})
	}
}

func TestResize_RefusalEvictsOnlyIfMethodAllows(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy *loadlinev1alpha1.SizingPolicy
		evicts bool
	}{
		{name: "Auto", policy: autoPolicy(), evicts: false},
		{name: "Auto with eviction", policy: autoPolicy(inPlaceOrRecreate), evicts: true},
		{name: "OneShot with eviction", policy: sizingPolicy(loadlinev1alpha1.RolloutModeOneShot, inPlaceOrRecreate), evicts: false},
		{name: "Canary with eviction", policy: sizingPolicy(loadlinev1alpha1.RolloutModeCanary, inPlaceOrRecreate), evicts: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 4, tc.policy)
			r.refuse("patch", "pods", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1-0", nil))
			r.at(0)
			require.Equal(t, tc.evicts, len(r.evictions()) == 1)
			require.Empty(t, r.noted())
			told := strings.Join(r.drainEvents(), "\n")
			require.Contains(t, told, `Warning ResizeFailed A pod could not be resized: resize pod shop/POD: Pod "POD" is invalid map[`)
			require.NotContains(t, r.record().Rounds[0].Outcome, "Reverted")
		})
	}
}

func TestResize_RefusalLeavesNoNote(t *testing.T) {
	r := newRolling(t, 3, autoPolicy())
	r.refuse("patch", "pods", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1-0", nil))
	r.at(0)
	require.Equal(t, []string{"patch pods ", "patch pods resize", "patch pods "}, r.writes(), "noted first, and taken off")
	require.Empty(t, r.noted())
	require.Equal(t, 1, r.skipped("ResizeRefused"))
	require.Equal(t, "100m 100m 100m", r.sizes())
	s := r.record()
	require.Equal(t, loadlinev1alpha1.RoundOutcome("Failed"), s.Rounds[0].SoFar)
	require.Zero(t, s.ConsecutiveReverts)

	// A refusal by a quota or permission is no failure of the pod.
	r = newRolling(t, 3, autoPolicy())
	r.refuse("patch", "pods", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-1-0", nil))
	r.at(0)
	require.Empty(t, r.noted())
	require.NotContains(t, strings.Join(r.drainEvents(), "\n"), "ResizeFailed")
	require.Empty(t, r.record().Rounds[0].SoFar)
}

// Without the record, earlier harm is unknown.
func TestRecord_UnreadableBlocksChanges(t *testing.T) {
	for name, policy := range map[string]*loadlinev1alpha1.SizingPolicy{"Auto": autoPolicy(), "Canary": canaryOf(50, true), "OneShot": sizingPolicy(loadlinev1alpha1.RolloutModeOneShot)} {
		record := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web",
			Annotations:     map[string]string{vpav1.UnreadableAnnotation: "status.rounds: wrong type"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web"}}}}
		r := newRolling(t, 3, policy, record)
		require.Empty(t, r.at(0), name)
		require.Equal(t, 3, r.skipped("NoRecord"), name)
		require.Equal(t, "100m 100m 100m", r.sizes(), name)
		require.Empty(t, r.writes(), name)
		after, err := r.vpa.LoadlineV1alpha1().SizingRecords("shop").Get(t.Context(), "deployment-web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, record, after, "%s: it is not overwritten", name)
	}
}

func TestRecord_MissingPermissionBlocksChanges(t *testing.T) {
	r := newRolling(t, 3, autoPolicy())
	// The informer never syncs, as without permission to list records.
	unread := externalversions.NewSharedInformerFactory(r.vpa, 0).Loadline().V1alpha1().SizingRecords()
	store, err := records.Watch(r.vpa, unread, r.caches.targets, false)
	require.NoError(t, err)
	r.loop.rollouts.Records, r.loop.policies.Records = store, store
	require.Empty(t, r.at(0))
	require.Equal(t, 3, r.skipped("NoRecord"))
	require.Empty(t, r.writes())
	// Mode Inherit needs no record.
	r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeInherit) })
	r.at(time.Minute)
	require.Zero(t, r.skipped("NoRecord"))
}

// The CRD is removed while the updater runs, and with it all records.
func TestRecord_MissingCRDBlocksChanges(t *testing.T) {
	r := newRolling(t, 3, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.judge(5 * time.Minute)
	for _, verb := range []string{"create", "update", "list", "get"} {
		r.vpa.PrependReactor(verb, "sizingrecords", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: loadlinev1alpha1.GroupName, Resource: "sizingrecords"}, "")
		})
	}
	require.NoError(t, r.vpa.Tracker().Delete(loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingrecords"), "shop", "deployment-web"))
	web, _ := r.loop.policies.Policies.Target(generatedVPA())
	require.Eventually(t, func() bool { // the last write takes precedence over the cache for a while
		s, err := r.loop.rollouts.Records.State(web)
		return err == nil && len(s.Rounds) == 0
	}, time.Minute, time.Millisecond)
	for _, after := range []time.Duration{6 * time.Minute, 4 * time.Hour} {
		require.Empty(t, r.at(after), "nobody would know of it")
		require.Positive(t, r.skipped("NoRecord"))
	}
	require.Equal(t, "50m 100m 100m", r.sizes())
	require.Empty(t, r.noted())
}

func TestRecord_FailedWriteBlocksChange(t *testing.T) {
	r := newRolling(t, 3, autoPolicy())
	broken := failCalls(r.vpa, "create", "sizingrecords", "")
	require.Empty(t, r.at(0))
	require.Equal(t, "100m 100m 100m", r.sizes())
	require.Positive(t, r.skipped("NoRecord"))
	require.Empty(t, r.writes())
	*broken = false
	require.Equal(t, []string{"web-1-0"}, r.at(time.Minute))
}

func TestDryRun_RolloutWritesNothing(t *testing.T) {
	config := Default()
	config.DryRun = true
	r := roll(t, config, append(deployment(4, nil), lowering(generatedVPA()), canaryOf(25, false), healthy("n1"))...)
	for minute := range 3 {
		r.at(time.Duration(minute) * time.Minute)
	}
	said := r.out.String()
	require.Contains(t, said, "would resize pod shop/web-1-0 (VPA deployment-web, OutOfBounds): app cpu 100m -> 50m")
	for _, pod := range []string{"web-1-1", "web-1-2", "web-1-3"} {
		require.Contains(t, said, "would skip pod shop/"+pod+" (VPA deployment-web): NotInCanary")
	}
	require.NotContains(t, said, "would resize pod shop/web-1-1")
	require.Zero(t, r.records())
	require.Empty(t, r.noted())
	require.Empty(t, r.writes())
}

// A dry run next to a real updater prints reverts without making them.
func TestDryRun_RevertWritesNothing(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.config.DryRun = true
	r.restart()
	before, writes := r.record(), r.writes()
	r.judge(time.Minute)
	require.Contains(t, r.out.String(), "would emit event on pod shop/web-1-0: Reverted: Change reverted, a container restarts repeatedly: app cpu 50m -> 100m")
	require.Equal(t, before, r.record())
	require.Equal(t, writes, r.writes())
	require.Equal(t, []string{"web-1-0"}, r.noted())
}

func (r *rolling) deletePolicy() {
	r.t.Helper()
	require.NoError(r.t, r.vpa.LoadlineV1alpha1().SizingPolicies().Delete(r.t.Context(), "fleet", metav1.DeleteOptions{}))
	require.Eventually(r.t, func() bool { return r.caches.policies.Snapshot().Object("fleet") == nil }, time.Minute, time.Millisecond)
}

func TestPolicy_DeletionPreventsReverts(t *testing.T) {
	r := roll(t, Default(), append(deployment(2, nil), loweringVPA(vpav1.UpdateModeInPlaceOrRecreate), autoPolicy(), healthy("n1"))...)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.deletePolicy()
	r.judge(time.Minute)
	require.Empty(t, r.noted(), "a person's VPA is let go")
	require.Equal(t, "50m 100m", r.sizes())
	require.Zero(t, r.reverts())

	r = newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.deletePolicy()
	for _, after := range []time.Duration{time.Minute, 5 * time.Minute, 23 * time.Hour} {
		r.judge(after)
		require.Empty(t, r.at(after))
		require.Equal(t, []string{"web-1-0"}, r.noted(), "nobody knows whether it comes back")
	}
	r.judge(24 * time.Hour)
	require.Empty(t, r.noted())
	require.Equal(t, "50m 100m", r.sizes())
	require.Zero(t, r.reverts())
}

func TestPolicy_PausePostponesReverts(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.edit(pausedPolicy)
	wait, err := r.sync("web-1-0", time.Minute)
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, wait)
	require.Empty(t, r.at(2*time.Minute))
	require.Equal(t, []string{"web-1-0"}, r.noted())
	require.Equal(t, "50m 100m", r.sizes())
	r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Paused = new(false) })
	r.judge(3 * time.Minute)
	require.Equal(t, "100m 100m", r.sizes())
	require.Equal(t, 1, r.reverts())
}

// The note of a workload paused for over a day is removed without a verdict.
func TestCanary_UnobservedIsNotPromoted(t *testing.T) {
	r := newRolling(t, 4, canaryOf(25, true))
	held := "Normal CanaryHeld Canary not promoted: no change completed its observation"
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	require.NotContains(t, r.drainEvents(), held)
	r.edit(pausedPolicy)
	r.judge(25 * time.Hour)
	require.Empty(t, r.noted())
	r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Paused = nil })
	require.Empty(t, r.at(25*time.Hour))
	require.Contains(t, r.drainEvents(), held)
	require.Equal(t, loadlinev1alpha1.RolloutPhaseCanary, r.record().Phase)
}

func TestAutoRevert_DisabledOnlyReportsHarm(t *testing.T) {
	r := newRolling(t, 2, autoPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Safety = &loadlinev1alpha1.Safety{AutoRevert: new(false)}
	}))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.drainEvents()
	r.restarted("web-1-0", 2)
	r.judge(time.Minute)
	require.Equal(t, "50m 100m", r.sizes())
	require.Empty(t, r.noted())
	require.Zero(t, r.reverts())
	require.Contains(t, r.drainEvents()[0], "Warning ResizeFailed Change did harm, a container restarts repeatedly. It is not reverted because spec.safety.autoRevert of the policy is false")
}
