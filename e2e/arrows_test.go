package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

func isResize(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/resize")
}

func isRecordUpdate(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/sizingrecords/")
}

func isRevertRecord(r *http.Request) bool {
	if !isRecordUpdate(r) {
		return false
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil && bytes.Contains(body, []byte(`"outcome":"Reverted"`))
}

// gatedUpdater starts an updater for one namespace behind a gate that can hold its requests.
func gatedUpdater(t *testing.T, ns string) (*harness.Daemon, *harness.Gate) {
	t.Helper()
	gate, err := cluster.Gate(t.Context(), "updater", "updater-"+ns)
	require.NoError(t, err)
	t.Cleanup(func() { _ = gate.Close() })
	own := ownUpdater(t, ns, ns, "--kubeconfig="+gate.Kubeconfig)
	t.Cleanup(own.Stop)
	return own, gate
}

func killAt(t *testing.T, own *harness.Daemon, what string, held <-chan struct{}) {
	t.Helper()
	select {
	case <-held:
		own.Kill()
	case <-time.After(longestWait):
		t.Fatalf("%s: not within %s", what, longestWait)
	}
}

// notes returns the times of the resize annotations on the pods of a workload, by pod name.
func notes(t *testing.T, w harness.Workload) map[string]time.Time {
	t.Helper()
	all := map[string]time.Time{}
	for _, pod := range pods(t, w) {
		if pod.Annotations["loadline.dev/resized-at"] != "" {
			all[pod.Name] = resizedAt(t, &pod)
		}
	}
	return all
}

func requireNothingReverted(t *testing.T, ns string) {
	t.Helper()
	events, err := cluster.Kube.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Reverted"})
	require.NoError(t, err)
	require.Empty(t, events.Items)
}

// Kills the updater between annotation, resize and record of a pod. The next updater continues with
// the same pods and observes each change from its original time.
func TestUpdater_ResumesCanaryAfterKillAtEachStep(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "arrows", 5)
	startWorkload(t, w)
	own, gate := gatedUpdater(t, w.Namespace)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeCanary, withShortObservation, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(40))}
		s.Rollout.Cooldown, s.Rollout.MaxConcurrent = &metav1.Duration{}, new(int32(0))
	})

	held := gate.HoldRequest(isResize)
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	killAt(t, own, "noted, not resized", held)
	require.Len(t, notes(t, w), 1)
	require.Empty(t, podsWithCPU(t, w, "60m"))
	members := membersOf(awaitRecord(t, w, "the canary", func(s *loadlinev1alpha1.SizingRecordStatus) bool { return len(s.CanaryMembers) == 2 }))

	// An iteration may end before it writes the record. Then the next resize is held.
	held = gate.HoldRequest(gate.After(isResize, func(r *http.Request) bool { return isRecordUpdate(r) || isResize(r) }))
	require.NoError(t, own.Start(t.Context()))
	killAt(t, own, "resized, not recorded", held)
	first := podsWithCPU(t, w, "60m")
	require.Len(t, first, 1)
	since := notes(t, w)

	held = gate.HoldAnswer(gate.After(isResize, isRecordUpdate))
	require.NoError(t, own.Start(t.Context()))
	killAt(t, own, "recorded", held)
	require.Equal(t, members, podsWithCPU(t, w, "60m"), "now the other one")
	for _, pod := range pods(t, w) {
		if pod.UID == first[0] {
			require.Equal(t, since[pod.Name], resizedAt(t, &pod), "the observation goes on")
		}
	}

	gate.Open()
	require.NoError(t, own.Start(t.Context()))
	ended := awaitRecord(t, w, "the end of the round", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) > 0 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundSuccess
	})
	require.Len(t, ended.Status.Rounds, 1)
	require.EqualValues(t, 2, ended.Status.Rounds[0].Pods)
	require.Equal(t, members, membersOf(ended))
	require.Zero(t, ended.Status.ConsecutiveReverts)
	forIterations(t, own, 10, func() { require.Equal(t, members, podsWithCPU(t, w, "60m")) })
	require.Empty(t, notes(t, w))
	requireNothingReverted(t, w.Namespace)
}

// Kills the updater after the reverting resize, and again after its record. The revert is neither
// repeated nor counted twice.
func TestUpdater_RevertsOnceWhenKilledDuringRevert(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "taken-back", 3)
	startWorkload(t, w)
	own, gate := gatedUpdater(t, w.Namespace)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, withShortObservation)
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	pod := awaitReduced(t, w)

	held := gate.HoldRequest(gate.After(isResize, isRecordUpdate))
	updatePodStatus(t, pod, withRestarts(2))
	killAt(t, own, "given back, not recorded", held)
	require.Empty(t, podsWithCPU(t, w, "60m"))
	require.Contains(t, notes(t, w), pod.Name)

	var resizesAfterKill atomic.Int32
	counting := func(match func(*http.Request) bool) func(*http.Request) bool {
		return func(r *http.Request) bool {
			if isResize(r) {
				resizesAfterKill.Add(1)
			}
			return match(r)
		}
	}
	held = gate.HoldAnswer(counting(isRevertRecord))
	require.NoError(t, own.Start(t.Context()))
	killAt(t, own, "recorded, still noted", held)
	require.Contains(t, notes(t, w), pod.Name)
	reverted := func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) > 0 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundReverted
	}
	recorded := awaitRecord(t, w, "the revert", reverted)
	require.Equal(t, "Restarts", recorded.Status.Rounds[0].Reason)
	require.EqualValues(t, 1, recorded.Status.ConsecutiveReverts)

	gate.HoldRequest(counting(func(*http.Request) bool { return false }))
	require.NoError(t, own.Start(t.Context()))
	eventually(t, "the note is taken off", func() error {
		if left := notes(t, w); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	forIterations(t, own, 10, func() { require.Empty(t, podsWithCPU(t, w, "60m"), "it comes back") })
	require.Zero(t, resizesAfterKill.Load(), "resizes after the first kill")
	after := awaitRecord(t, w, "the same", reverted)
	require.Equal(t, recorded.Status.Rounds, after.Status.Rounds)
	require.Equal(t, recorded.Status.CooldownUntil, after.Status.CooldownUntil)
	require.Equal(t, recorded.Status.Kept, after.Status.Kept)
	require.EqualValues(t, 1, after.Status.ConsecutiveReverts)
}
