package updater

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// fakeClient is a fake clientset with injectable failures.
type fakeClient interface {
	PrependReactor(verb, resource string, reaction ktesting.ReactionFunc)
}

// failCalls makes calls fail without an answer while the returned flag is true.
func failCalls(client fakeClient, verb, resource, subresource string) *bool {
	broken := true
	client.PrependReactor(verb, resource, func(a ktesting.Action) (bool, runtime.Object, error) {
		if broken && a.GetSubresource() == subresource {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	return &broken
}

func (r *rolling) reverts() int {
	return int(r.value("loadline_updater_reverts_total", "vpa_name", "deployment-web"))
}

func (r *rolling) resizes() (count int) {
	for _, call := range r.writes() {
		if call == "patch pods resize" {
			count++
		}
	}
	return count
}

func TestCrash_BetweenNoteAndResize(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	broken := failCalls(r.kube, "patch", "pods", "resize")
	require.Equal(t, []string{"web-1-0"}, r.at(0), "it is noted")
	require.Equal(t, "100m 100m 100m", r.sizes())
	*broken = false

	r.restart()
	require.Empty(t, r.at(time.Minute), "a noted pod is not changed, nor is another one beside it")
	r.judge(time.Minute)
	require.Empty(t, r.noted(), "what was never done needs no observation")
	require.Equal(t, "100m 100m 100m", r.sizes())
	require.Zero(t, r.reverts())
	s := r.record()
	require.Zero(t, s.ConsecutiveReverts)
	require.Empty(t, s.Reverted)
	require.Nil(t, s.CooldownUntil)
	require.Equal(t, []string{"web-1-0"}, r.at(2*time.Minute), "it is done after all")
	r.judge(7 * time.Minute)
	require.Len(t, r.record().Rounds, 1)
}

func TestCrash_UnmadeChangeIsNotJudged(t *testing.T) {
	pods := deployment(3, func(p *corev1.Pod) { p.Generation = 4 })
	r := roll(t, Default(), append(pods, lowering(generatedVPA()), autoPolicy(), healthy("n1"))...)
	broken := failCalls(r.kube, "patch", "pods", "resize")
	require.Equal(t, []string{"web-1-0"}, r.at(0), "it is noted")
	*broken = false
	r.restart()
	r.restarted("web-1-0", 5)
	r.judge(time.Minute)
	require.Empty(t, r.noted())
	require.Zero(t, r.reverts())
	require.Equal(t, "100m 100m 100m", r.sizes())
	s := r.record()
	require.Zero(t, s.ConsecutiveReverts)
	require.Empty(t, s.Reverted)
}

func TestCrash_BetweenResizeAndRecord(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	broken := failCalls(r.vpa, "update", "sizingrecords", "")
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	require.Equal(t, "50m 100m 100m", r.sizes())
	require.Zero(t, r.record().Rounds[0].Pods)
	require.EqualValues(t, 1, r.value("loadline_updater_record_errors_total"))
	*broken = false

	r.restart()
	require.Empty(t, r.at(2*time.Minute))
	require.Equal(t, 2, r.skipped("UnderObservation"))
	r.judge(4 * time.Minute)
	require.Equal(t, []string{"web-1-0"}, r.noted(), "the period goes on from the note")
	r.judge(5 * time.Minute)
	require.Empty(t, r.noted())
	require.EqualValues(t, 1, r.record().Rounds[0].Pods)
	require.Equal(t, []string{"web-1-1"}, r.at(6*time.Minute))
	require.EqualValues(t, 2, r.record().Rounds[0].Pods)
}

// A revert resizes the pod, then writes the record and removes the note last.
func TestCrash_BetweenRevertAndRecord(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	broken := failCalls(r.vpa, "update", "sizingrecords", "")
	_, err := r.sync("web-1-0", time.Minute)
	require.ErrorContains(t, err, "write SizingRecord shop/deployment-web: connection refused")
	r.settled("web-1-0")
	require.Equal(t, "100m 100m 100m", r.sizes())
	require.Equal(t, []string{"web-1-0"}, r.noted())
	require.Equal(t, 1, r.reverts())
	*broken = false

	before := r.resizes()
	r.restart()
	r.judge(2 * time.Minute)
	require.Equal(t, before, r.resizes(), "nothing is left to be given back")
	require.Empty(t, r.noted())
	require.Zero(t, r.reverts(), "it was counted")
	s := r.record()
	require.EqualValues(t, 1, s.ConsecutiveReverts)
	require.Len(t, s.Rounds, 1)
	require.Equal(t, loadlinev1alpha1.RoundReverted, s.Rounds[0].Outcome)
	require.Equal(t, noon.Add(122*time.Minute), s.CooldownUntil.UTC())

	r.restart() // even if only the note was left
	r.judge(3 * time.Minute)
	require.Equal(t, s, r.record())
}

// A reverted pod may be ready again before the record is written.
func TestRevert_RecoveryBeforeRecordKeepsVerdict(t *testing.T) {
	for _, tc := range []struct {
		name     string
		restarts bool
	}{
		{name: "same updater"},
		{name: "next updater", restarts: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
			require.Equal(t, []string{"web-1-0"}, r.at(0))
			r.ready("web-1-0", corev1.ConditionFalse, time.Minute)
			broken := failCalls(r.vpa, "update", "sizingrecords", "")
			_, err := r.sync("web-1-0", 5*time.Minute)
			require.Error(t, err)
			r.settled("web-1-0")
			require.Equal(t, "100m 100m 100m", r.sizes(), "given back")
			r.ready("web-1-0", corev1.ConditionTrue, 5*time.Minute)
			*broken = false
			if tc.restarts {
				r.restart()
			}
			require.Empty(t, r.at(6*time.Minute), "it is not lowered again")
			r.judge(6 * time.Minute)
			require.Empty(t, r.noted())
			require.Equal(t, "100m 100m 100m", r.sizes())
			s := r.record()
			require.EqualValues(t, 1, s.ConsecutiveReverts)
			require.Equal(t, "NotReady", s.Rounds[0].Reason)
			require.Equal(t, noon.Add(126*time.Minute), s.CooldownUntil.UTC())
		})
	}
}

func TestCrash_BetweenHarmAndRevert(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.ready("web-1-0", corev1.ConditionFalse, time.Minute)
	broken := failCalls(r.kube, "patch", "pods", "resize")
	_, err := r.sync("web-1-0", 5*time.Minute)
	require.Error(t, err)
	r.ready("web-1-0", corev1.ConditionTrue, 5*time.Minute)
	*broken = false

	r.restart()
	r.judge(20 * time.Minute)
	require.Equal(t, "100m 100m 100m", r.sizes(), "what was seen in time is taken back, by whomever")
	require.EqualValues(t, 1, r.record().ConsecutiveReverts)
}

func TestCrash_DuringCanary(t *testing.T) {
	policy := sizingPolicy(loadlinev1alpha1.RolloutModeCanary, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(50))}
		s.Rollout.MaxConcurrent = new(int32(2))
	})
	r := newRolling(t, 10, policy)
	require.Equal(t, []string{"web-1-0", "web-1-1"}, r.at(0))
	members := r.record().CanaryMembers
	require.Len(t, members, 5)
	r.restart()
	r.judge(3 * time.Minute)
	require.Equal(t, []string{"web-1-0", "web-1-1"}, r.noted())
	require.Empty(t, r.at(3*time.Minute))
	require.Equal(t, 3, r.skipped("UnderObservation"))
	require.Equal(t, 5, r.skipped("NotInCanary"))
	r.judge(5 * time.Minute)
	require.Equal(t, []string{"web-1-2", "web-1-3"}, r.at(6*time.Minute))
	r.restart()
	r.judge(11 * time.Minute)
	require.Equal(t, []string{"web-1-4"}, r.at(12*time.Minute))
	r.restart()
	r.judge(17 * time.Minute)
	require.Empty(t, r.at(18*time.Minute))
	s := r.record()
	for i, m := range s.CanaryMembers {
		require.Equal(t, members[i].UID, m.UID)
		require.Equal(t, loadlinev1alpha1.RoundSuccess, m.Outcome)
	}
	require.Len(t, s.Rounds, 1)
	require.EqualValues(t, 5, s.Rounds[0].Pods)
	require.Equal(t, loadlinev1alpha1.RoundSuccess, s.Rounds[0].Outcome)
	require.Equal(t, loadlinev1alpha1.RolloutPhaseCanary, s.Phase)
}

func TestObservation_ExpiresAfterTwoDaysOffline(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 9)
	r.restart()
	r.judge(48 * time.Hour)
	require.Empty(t, r.noted())
	require.Equal(t, "50m 100m", r.sizes())
	require.Zero(t, r.reverts())
	require.Empty(t, r.drainEvents())
	s := r.record()
	require.Equal(t, loadlinev1alpha1.RoundOutcome("Unobserved"), s.Rounds[0].SoFar)
	require.Zero(t, s.ConsecutiveReverts)
	require.Empty(t, s.Kept, "nobody knows whether that is enough")
}

// Each leader must see the other's writes before it writes.
func TestRecord_MergesConcurrentLeaderWrites(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	conflicts := 0
	r.vpa.PrependReactor("update", "sizingrecords", func(a ktesting.Action) (bool, runtime.Object, error) {
		if conflicts > 0 {
			return false, nil, nil
		}
		conflicts++
		// The other one ends its round and adds state of its own.
		theirs := a.(ktesting.UpdateAction).GetObject().DeepCopyObject().(*loadlinev1alpha1.SizingRecord)
		theirs.Status = loadlinev1alpha1.SizingRecordStatus{Mode: "Auto", PolicyHash: theirs.Status.PolicyHash,
			Rounds: []loadlinev1alpha1.Round{{Time: metav1.NewTime(noon.Add(-time.Minute)), Pods: 7}},
			Kept:   []loadlinev1alpha1.ContainerSizes{{Name: "other", Requests: loadlinev1alpha1.Sizes(list("1", "1Gi"))}}}
		require.NoError(t, r.vpa.Tracker().Update(loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingrecords"), theirs, "shop"))
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "sizingrecords"}, theirs.Name, nil)
	})
	r.judge(time.Minute)
	require.Equal(t, 1, conflicts)
	s := r.record()
	require.EqualValues(t, 7, s.Rounds[0].Pods, "what the other one counted stays")
	require.Equal(t, loadlinev1alpha1.RoundReverted, s.Rounds[0].Outcome)
	require.Equal(t, "other", s.Kept[1].Name)
	require.Equal(t, "100m 100m 100m", r.sizes())
	require.Empty(t, r.noted())
}

func TestRevert_RetriesFailure(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.drainEvents()
	broken := failCalls(r.kube, "patch", "pods", "resize")
	for range 3 {
		_, err := r.sync("web-1-0", time.Minute)
		require.ErrorContains(t, err, "revert pod shop/web-1-0: connection refused")
	}
	require.Equal(t, "50m 100m", r.sizes())
	require.Equal(t, []string{"web-1-0"}, r.noted())
	require.Zero(t, r.reverts())
	require.Len(t, r.drainEvents(), 2, "on pod and VPA, once")
	require.EqualValues(t, 3, r.value("loadline_updater_revert_errors_total"))
	require.Empty(t, r.record().Rounds[0].Outcome)
	*broken = false
	r.judge(2 * time.Minute)
	require.Equal(t, "100m 100m", r.sizes())
	require.Equal(t, 1, r.reverts())
	require.Len(t, r.drainEvents(), 2, "on pod and VPA")
	s := r.record()
	require.EqualValues(t, 1, s.ConsecutiveReverts)
	require.Equal(t, loadlinev1alpha1.RoundReverted, s.Rounds[0].Outcome)
	// The cache may still show the note.
	_, err := r.sync("web-1-0", 2*time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, r.reverts())
	require.Equal(t, s, r.record())
}

// A clock change of one hour must neither cause a revert nor shorten the observation.
func TestObservation_ToleratesClockChange(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.judge(-time.Hour)
	require.Equal(t, []string{"web-1-0"}, r.noted(), "set back: it goes on")
	require.Empty(t, r.at(-time.Hour))
	r.restarted("web-1-0", 2)
	r.judge(-59 * time.Minute)
	require.Equal(t, "100m 100m", r.sizes(), "harm is harm")
	require.Equal(t, 1, r.reverts())

	r = newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.judge(65 * time.Minute)
	require.Empty(t, r.noted())
	require.Equal(t, "50m 100m", r.sizes(), "set forward: what is known now says nothing of then")
	require.Zero(t, r.reverts())
	require.Equal(t, loadlinev1alpha1.RoundOutcome("Unobserved"), r.record().Rounds[0].SoFar)
}
