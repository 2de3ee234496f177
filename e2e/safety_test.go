package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/pkg/convert"
)

const maxRevertDelay = 10 * time.Second

// startReduced returns a workload with a pod that has been reduced, and this pod.
func startReduced(t *testing.T, name string) (w harness.Workload, pod *corev1.Pod) {
	t.Helper()
	w = newWorkload(t, name, 3)
	w.Containers[0].MemoryLimit = "100Mi"
	startWorkload(t, w)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, withShortObservation)
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	return w, awaitReduced(t, w)
}

func awaitReduced(t *testing.T, w harness.Workload) (changed *corev1.Pod) {
	t.Helper()
	eventually(t, "a pod of "+w.Namespace+"/"+w.Name+" runs with less", func() error {
		for _, pod := range pods(t, w) {
			if has := pod.Status.ContainerStatuses[0].Resources; has != nil && has.Requests.Cpu().String() == "60m" {
				changed = &pod
				return nil
			}
		}
		return errors.New("none does")
	})
	return changed
}

// resizedAt returns the start of the observation of a pod's change.
func resizedAt(t *testing.T, pod *corev1.Pod) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, pod.Annotations[convert.ResizedAtAnnotation])
	require.NoError(t, err)
	return at
}

// updatePodStatus changes the status of a pod, and returns the time before the update.
func updatePodStatus(t *testing.T, pod *corev1.Pod, change func(*corev1.PodStatus)) (at time.Time) {
	t.Helper()
	eventually(t, "the status of "+pod.Name+" is written", func() error {
		fresh, err := cluster.Kube.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&fresh.Status)
		at = time.Now()
		_, err = cluster.Kube.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), fresh, metav1.UpdateOptions{})
		return err
	})
	return at
}

func withRestarts(times int32) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		c, now := &s.ContainerStatuses[0], metav1.Now()
		c.RestartCount += times
		c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: now}}
		c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	}
}

func withReadiness(is corev1.ConditionStatus) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		for i := range s.Conditions {
			if s.Conditions[i].Type == corev1.PodReady {
				s.Conditions[i].Status, s.Conditions[i].LastTransitionTime = is, metav1.Now()
			}
		}
	}
}

// requireReverted waits until the change of a pod is reverted in place, soon after the evidence,
// with an event and a record of the reason.
func requireReverted(t *testing.T, w harness.Workload, pod *corev1.Pod, reason string, evidence time.Time) {
	t.Helper()
	within(t, longestWait+shareWindow, "an event says that the change of "+pod.Name+" is taken back", func() error {
		events, err := cluster.Kube.CoreV1().Events(pod.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Reverted,involvedObject.name=" + pod.Name})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("none does")
		}
		at := events.Items[0].FirstTimestamp // the timestamp has a resolution of one second
		require.False(t, at.Time.Before(evidence.Truncate(time.Second)), "at %s, before the evidence of %s", at, evidence)
		require.LessOrEqual(t, at.Add(time.Second).Sub(evidence), maxRevertDelay)
		fmt.Printf("taken back: %s, %.0f s or less after the evidence\n", reason, at.Add(time.Second).Sub(evidence).Seconds())
		return nil
	})
	record := awaitRecord(t, w, "the revert", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) > 0 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundReverted
	})
	require.Equal(t, reason, record.Status.Rounds[0].Reason)
	eventually(t, "the note is taken off", func() error {
		after, err := cluster.Kube.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, pod.UID, after.UID, "in place")
		require.Equal(t, "100m", after.Spec.Containers[0].Resources.Requests.Cpu().String())
		require.Equal(t, "100Mi", after.Spec.Containers[0].Resources.Requests.Memory().String())
		if after.Annotations[convert.ResizedAtAnnotation] != "" {
			return errors.New("it is there")
		}
		return nil
	})
}

// requireNotRepeated requires that a reverted change is not repeated, neither for existing pods nor
// for new ones.
func requireNotRepeated(t *testing.T, by *harness.Daemon, w harness.Workload) {
	t.Helper()
	awaitSkippedBy(t, by, w.Namespace, "RevertBackoff")
	w.Replicas++
	scale(t, w)
	awaitRunning(t, w)
	forIterations(t, by, 10, func() { require.Empty(t, podsWithCPU(t, w, "60m"), "it comes back") })
	require.Len(t, podsWithCPU(t, w, "100m"), int(w.Replicas))
}

func TestRevert_AfterOOMKill(t *testing.T) {
	parallelTest(t)
	w, pod := startReduced(t, "hurt")
	time.Sleep(2 * time.Second) // a kill within the second of the change is no evidence
	annotatePod(t, pod, "sim.loadline.dev/oom", "app")
	var killed time.Time
	eventually(t, "the container is killed", func() error {
		after, err := cluster.Kube.CoreV1().Pods(w.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil || restarts(after) == 0 {
			return fmt.Errorf("not yet: %w", err)
		}
		killed = after.Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt.Time
		return nil
	})
	requireReverted(t, w, pod, "OOMKilled", killed)
	after, err := cluster.Kube.CoreV1().Pods(w.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, restarts(after), "without a restart of ours")
	requireNotRepeated(t, updater, w)
}

// One restart after a reduction is tolerated, two are harm.
func TestRevert_AfterTwoRestarts(t *testing.T) {
	parallelTest(t)
	w, pod := startReduced(t, "restarting")
	updatePodStatus(t, pod, withRestarts(1))
	forIterations(t, updater, 2, func() { require.NotEmpty(t, annotatedPods(t, w)) })
	requireReverted(t, w, pod, "Restarts", updatePodStatus(t, pod, withRestarts(1)))
	requireNotRepeated(t, updater, w)
}

// A pod that is not ready may recover until the observation ends.
func TestRevert_PodNotReadyAtEndOfObservation(t *testing.T) {
	parallelTest(t)
	w, pod := startReduced(t, "unready")
	updatePodStatus(t, pod, withReadiness(corev1.ConditionFalse))
	requireReverted(t, w, pod, "NotReady", resizedAt(t, pod).Add(time.Minute))
	updatePodStatus(t, pod, withReadiness(corev1.ConditionTrue))
	requireNotRepeated(t, updater, w)
}
