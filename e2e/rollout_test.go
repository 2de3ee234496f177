package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

var smaller = resourceList("60m", "60Mi")

// withShortObservation sets the observation period to a minute, the minimum.
func withShortObservation(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Safety = &loadlinev1alpha1.Safety{ObservationPeriod: &metav1.Duration{Duration: time.Minute}}
}

func scale(t *testing.T, w harness.Workload) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, w.Replicas)
	_, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Patch(t.Context(), w.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func podsWithCPU(t *testing.T, w harness.Workload, cpu string) (uids []types.UID) {
	t.Helper()
	for _, pod := range pods(t, w) {
		if has := pod.Spec.Containers[0].Resources.Requests.Cpu(); has.Cmp(*quantity(cpu)) == 0 {
			uids = append(uids, pod.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

func awaitPodsWithCPU(t *testing.T, w harness.Workload, cpu string, count int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods of %s request %s", count, w.Namespace, cpu), func() error {
		if n := len(podsWithCPU(t, w, cpu)); n != count {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
}

func awaitRecord(t *testing.T, w harness.Workload, what string, holds func(*loadlinev1alpha1.SizingRecordStatus) bool) (record *loadlinev1alpha1.SizingRecord) {
	t.Helper()
	eventually(t, "the record of "+w.Namespace+"/"+w.Name+" shows "+what, func() (err error) {
		record, err = cluster.VPA.LoadlineV1alpha1().SizingRecords(w.Namespace).Get(t.Context(), "deployment-"+w.Name, metav1.GetOptions{})
		if err == nil && !holds(&record.Status) {
			err = fmt.Errorf("%+v", record.Status)
		}
		return err
	})
	return record
}

func annotatePod(t *testing.T, pod *corev1.Pod, key, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	_, err := cluster.Kube.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func membersOf(record *loadlinev1alpha1.SizingRecord) (uids []types.UID) {
	for _, m := range record.Status.CanaryMembers {
		uids = append(uids, m.UID)
	}
	slices.Sort(uids)
	return uids
}

// Two of ten pods stay the canary over thirty iterations, a scale-up to fifteen and a leader
// change, until promotion.
func TestCanary_KeepsMembersUntilPromotion(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "canary", 10)
	allowLeases(t, w.Namespace, "vpa-updater")
	pair := []*harness.Daemon{}
	for _, label := range []string{"canary-first", "canary-second"} {
		d := ownUpdater(t, w.Namespace, label, append(leaderElectionFlags(w.Namespace), "--updater-interval=2s")...)
		t.Cleanup(d.Stop)
		pair = append(pair, d)
	}
	before := startWorkload(t, w)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeCanary, withShortObservation, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(20))}
		s.Rollout.Cooldown, s.Rollout.MaxConcurrent = &metav1.Duration{}, new(int32(0))
		s.Rollout.InitialSizing = new(loadlinev1alpha1.InitialSizingOff) // otherwise the webhook sizes new pods
	})
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	awaitPodsWithCPU(t, w, "60m", 2)
	members := podsWithCPU(t, w, "60m")
	leader, standby := leaderOf(t, pair)
	awaitSkippedBy(t, leader, w.Namespace, "NotInCanary")
	w.Replicas = 15
	scale(t, w)
	awaitRunning(t, w)
	same := func() { require.Equal(t, members, podsWithCPU(t, w, "60m"), "a canary of other pods") }
	forIterations(t, leader, 15, same)
	leader.Kill()
	eventually(t, "the standby works", func() error {
		if iterationCount(t, standby) == 0 {
			return errors.New("no pass yet")
		}
		return nil
	})
	forIterations(t, standby, 15, same)
	ended := awaitRecord(t, w, "the end of the round", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) == 1 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundSuccess
	})
	require.Equal(t, members, membersOf(ended))
	require.Equal(t, loadlinev1alpha1.RolloutPhaseCanary, ended.Status.Phase)
	forIterations(t, standby, 3, same)

	_, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Patch(t.Context(), w.Namespace, types.MergePatchType, []byte(`{"spec":{"rollout":{"canary":{"autoPromote":true}}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	awaitSized(t, w, "60m")
	awaitRecord(t, w, "the full rollout", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return s.Phase == loadlinev1alpha1.RolloutPhaseFullRollout
	})
	for _, old := range before {
		pod, err := cluster.Kube.CoreV1().Pods(w.Namespace).Get(t.Context(), old.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, old.UID, pod.UID, "in place")
	}
}

func annotatedPods(t *testing.T, w harness.Workload) (names []string) {
	t.Helper()
	for _, pod := range pods(t, w) {
		if pod.Annotations["loadline.dev/resized-at"] != "" {
			names = append(names, pod.Name)
		}
	}
	return names
}

func TestOneShot_ChangesOnePodPerRound(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "one-shot", 3)
	startWorkload(t, w)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeOneShot, withShortObservation, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Cooldown = &metav1.Duration{Duration: time.Minute}
	})
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	awaitPodsWithCPU(t, w, "60m", 1)
	first := awaitRecord(t, w, "the end of the round", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) == 1 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundSuccess
	})
	require.EqualValues(t, 1, first.Status.Rounds[0].Pods)
	require.Len(t, podsWithCPU(t, w, "60m"), 1)
	awaitSkipped(t, w.Namespace, "CoolingDown")
	second := awaitRecord(t, w, "the next round", func(s *loadlinev1alpha1.SizingRecordStatus) bool { return len(s.Rounds) == 2 })
	require.False(t, second.Status.Rounds[0].Time.Before(first.Status.CooldownUntil), "%s is before %s", second.Status.Rounds[0].Time, first.Status.CooldownUntil)
	awaitPodsWithCPU(t, w, "60m", 2)
}

// The VPA is generated, so its pods may change only while the policy exists.
func TestSizingPolicy_DeletionStopsChanges(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "let-go", 4)
	startWorkload(t, w)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, withShortObservation)
	awaitGeneratedVPA(t, w.Namespace, "deployment-web")
	eventually(t, "a pod is changed", func() error {
		if len(annotatedPods(t, w)) == 0 {
			return errors.New("none is")
		}
		return nil
	})
	// In mode Auto new pods get the target, although the VPA is in mode Off.
	w.Replicas = 5
	scale(t, w)
	eventually(t, "the new pod is sized when it is created", func() error {
		for _, pod := range pods(t, w) {
			if pod.Annotations["vpaUpdates"] != "" && pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "100m" {
				return nil
			}
		}
		return errors.New("none is")
	})
	deletePolicy(t, w.Namespace)
	awaitSkipped(t, w.Namespace, "PolicyUnknown")
	before := pods(t, w)
	during(t, 90*time.Second, func() { // beyond the end of the observation
		for i, pod := range pods(t, w) {
			require.Equal(t, before[i].UID, pod.UID)
			require.Equal(t, before[i].Spec.Containers[0].Resources, pod.Spec.Containers[0].Resources)
		}
	})
}
