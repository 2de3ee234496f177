package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

const mi = 1 << 20

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

var (
	fullRequest    = amounts{cpu: 100, memory: 1024 * mi}
	reducedRequest = amounts{cpu: 100, memory: 256 * mi}
)

// finalSnapshot is the state at the end of the second act: a pod of hurt got its memory back five
// seconds ago, and sound is promoted.
func finalSnapshot() snapshot {
	pod := func(workload, name string, has amounts) podState {
		return podState{workload: workload, name: name, uid: types.UID(name), request: has, limit: has, granted: has}
	}
	killed := pod(hurt, hurt+"-0", fullRequest)
	killed.restarts, killed.oomKilled, killed.killed = 1, true, noon.Add(-5*time.Second)
	return snapshot{at: noon, rollouts: []rollout{
		{
			workload: sound, written: fullRequest, writtenLimit: fullRequest, mode: vpav1.UpdateModeOff, target: &reducedRequest,
			pods: []podState{pod(sound, sound+"-0", reducedRequest), pod(sound, sound+"-1", reducedRequest)},
			record: loadlinev1alpha1.SizingRecordStatus{
				Phase: loadlinev1alpha1.RolloutPhaseFullRollout, Rounds: []loadlinev1alpha1.Round{{}},
			},
		},
		{
			workload: hurt, written: fullRequest, writtenLimit: fullRequest, mode: vpav1.UpdateModeOff, target: &reducedRequest,
			pods: []podState{killed, pod(hurt, hurt+"-1", fullRequest)},
			record: loadlinev1alpha1.SizingRecordStatus{
				Phase:  loadlinev1alpha1.RolloutPhaseCanary,
				Rounds: []loadlinev1alpha1.Round{{Outcome: loadlinev1alpha1.RoundReverted, Reason: "OOMKilled"}},
			},
		},
	}}
}

func finishedAct() secondAct {
	return secondAct{began: noon, smallSince: noon, peaked: noon, restoreTime: 5 * time.Second}
}

func TestSecondAct_WaitsForAllSteps(t *testing.T) {
	done := finishedAct()
	require.Empty(t, done.pendingStep(finalSnapshot()))
	for _, tc := range []struct {
		name   string
		want   string
		change func(*secondAct, *snapshot)
	}{
		{name: "policy not created", want: "the SizingPolicy is not created",
			change: func(a *secondAct, _ *snapshot) { a.began = time.Time{} }},
		{name: "workload without a recommendation", want: "front has no recommendation",
			change: func(_ *secondAct, s *snapshot) { s.rollouts[0].target = nil }},
		{name: "workload without a canary", want: "report has no canary",
			change: func(_ *secondAct, s *snapshot) { s.rollouts[1].record.Rounds = nil }},
		{name: "no pod with less memory", want: "no pod of report has less memory",
			change: func(a *secondAct, _ *snapshot) { a.peaked = time.Time{} }},
		{name: "memory not given back", want: "memory of report is not given back",
			change: func(a *secondAct, _ *snapshot) { a.restoreTime = 0 }},
		{name: "record without a revert", want: "the record of report does not show the revert",
			change: func(_ *secondAct, s *snapshot) { s.rollouts[1].record.Rounds[0].Reason = "NotReady" }},
		{name: "workload not promoted", want: "front is not promoted",
			change: func(_ *secondAct, s *snapshot) { s.rollouts[0].record.Phase = loadlinev1alpha1.RolloutPhaseCanary }},
		{name: "pods without the new size", want: "1 of 2 pods of front have the new size",
			change: func(_ *secondAct, s *snapshot) { s.rollouts[0].pods[0].request = fullRequest }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, s := finishedAct(), finalSnapshot()
			tc.change(&a, &s)
			require.Equal(t, tc.want, a.pendingStep(s))
		})
	}
}

func TestSecondAct_ChecksClaims(t *testing.T) {
	done := finishedAct()
	require.NoError(t, done.check(finalSnapshot(), finalSnapshot()))
	for _, tc := range []struct {
		name   string
		want   string
		change func(*secondAct, *snapshot)
	}{
		{name: "memory given back too late", want: "memory of report was given back 11s after the kill, later than 10s",
			change: func(a *secondAct, _ *snapshot) { a.restoreTime = 10*time.Second + 1 }},
		{name: "replaced pod", want: "report-1 replaced a pod",
			change: func(_ *secondAct, s *snapshot) { s.rollouts[1].pods[1].uid = "another" }},
		{name: "killed container of front", want: "front-1 was restarted 1 times", change: func(_ *secondAct, s *snapshot) {
			s.rollouts[0].pods[1].restarts, s.rollouts[0].pods[1].oomKilled = 1, true
		}},
		{name: "restart without a kill", want: "report-0 was restarted 1 times",
			change: func(_ *secondAct, s *snapshot) { s.rollouts[1].pods[0].oomKilled = false }},
		{name: "two killed containers", want: "2 containers of report were killed", change: func(_ *secondAct, s *snapshot) {
			s.rollouts[1].pods[1].restarts, s.rollouts[1].pods[1].oomKilled = 1, true
		}},
		{name: "pod with less than its request", want: "1 pods of report have less than they asked for",
			change: func(_ *secondAct, s *snapshot) { s.rollouts[1].pods[0].request = reducedRequest }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, s := finishedAct(), finalSnapshot()
			tc.change(&a, &s)
			require.ErrorContains(t, a.check(finalSnapshot(), s), tc.want)
		})
	}
}

// The reported time is rounded up, because the time of a kill has a resolution of one second.
func TestSecondAct_ReportsTimeToRevertedMemory(t *testing.T) {
	a, s := finishedAct(), finalSnapshot()
	a.restoreTime = 0
	s.rollouts[1].pods[0].request.cpu++ // an increase, which is not reverted
	s.rollouts[1].pods[0].granted = reducedRequest
	said, err := a.step(t.Context(), s, noon)
	require.NoError(t, err)
	require.Empty(t, said, "its node has not given it yet")
	s.rollouts[1].pods[0].granted = fullRequest
	s.at = noon.Add(100 * time.Millisecond)
	said, err = a.step(t.Context(), s, noon.Add(-time.Minute))
	require.NoError(t, err)
	require.Equal(t, []string{"  60s  report-0: has its 1024Mi again, at most 6s after the kill"}, said)
	said, err = a.step(t.Context(), s, noon)
	require.NoError(t, err)
	require.Empty(t, said, "that is said once")
}

func TestSecondAct_PeakWaitsForNodeToLowerMemory(t *testing.T) {
	var a secondAct
	s := finalSnapshot()
	require.False(t, a.isSmallLongEnough(s))
	s.rollouts[1].pods[1].request = reducedRequest
	require.False(t, a.isSmallLongEnough(s), "its node has not acted")
	s.rollouts[1].pods[1].granted = reducedRequest
	require.False(t, a.isSmallLongEnough(s))
	s.at = noon.Add(peakDelay)
	require.True(t, a.isSmallLongEnough(s))
}

func TestRolloutChanges_ListsChanges(t *testing.T) {
	before, after := finalSnapshot(), finalSnapshot()
	before.rollouts[0].mode, before.rollouts[0].target, before.rollouts[0].record = "", nil, loadlinev1alpha1.SizingRecordStatus{}
	before.rollouts[0].pods[0].request = fullRequest
	before.rollouts[1].record.Rounds[0].Outcome = ""
	before.rollouts[1].pods[0].restarts, before.rollouts[1].pods[0].request, before.rollouts[1].pods[0].limit = 0, reducedRequest, reducedRequest
	after.events = []event{{"e", "Reverted", hurt + "-0", "Change reverted"}}
	require.Equal(t, []string{
		"   0s  front: VPA deployment-front made, in mode Off",
		"   0s  front: first recommendation: target 100m / 256Mi",
		"   0s  front-0: resized in place: 100m / 1024Mi -> 100m / 256Mi",
		"   0s  front: 2 of 2 pods have the new size, phase FullRollout, last round: under way",
		"   0s  report-0: OOM-killed at a memory limit of 256Mi",
		"   0s  report-0: resized in place: 100m / 256Mi -> 100m / 1024Mi",
		"   0s  report: 0 of 2 pods have the new size, phase Canary, last round: Reverted, OOMKilled",
		"   0s  report-0: event Reverted: Change reverted",
	}, rolloutChanges(before, after, noon))
	require.Empty(t, rolloutChanges(after, after, noon))
}

func TestRolloutRows_PrintsTable(t *testing.T) {
	rows := rolloutRows(finalSnapshot())
	require.Equal(t, []string{
		"WORKLOAD                         WRITTEN          TARGET   WITH NEW SIZE        PHASE  LAST ROUND",
		"front                      100m / 1024Mi    100m / 256Mi          2 of 2  FullRollout  under way",
		"report                     100m / 1024Mi    100m / 256Mi          0 of 2       Canary  Reverted, OOMKilled",
	}, rows)
	empty := finalSnapshot()
	empty.rollouts = []rollout{{workload: sound, written: fullRequest}}
	require.Equal(t, "front                      100m / 1024Mi               -          0 of 0            -  -", rolloutRows(empty)[1])
}
