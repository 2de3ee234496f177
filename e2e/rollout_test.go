package e2e

import (
	"errors"
	"fmt"
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

// smaller is less than the pods of plain have.
var smaller = pair("60m", "60Mi")

// observedFor makes a policy observe changes for a minute, the least.
func observedFor(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Safety = &loadlinev1alpha1.Safety{ObservationPeriod: &metav1.Duration{Duration: time.Minute}}
}

// countOf counts the pods of a workload that request some CPU.
func countOf(t *testing.T, w harness.Workload, cpu string) (count int) {
	t.Helper()
	for _, pod := range pods(t, w) {
		if has := pod.Spec.Containers[0].Resources.Requests.Cpu(); has.Cmp(*quantity(cpu)) == 0 {
			count++
		}
	}
	return count
}

// awaitSome waits until so many pods of a workload request some CPU.
func awaitSome(t *testing.T, w harness.Workload, cpu string, count int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods of %s request %s", count, w.Namespace, cpu), func() error {
		if n := countOf(t, w, cpu); n != count {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
}

func awaitRecord(t *testing.T, w harness.Workload, what string, holds func(*loadlinev1alpha1.SizingRecordStatus) bool) (record *loadlinev1alpha1.SizingRecord) {
	t.Helper()
	eventually(t, "the record of "+w.Namespace+" shows "+what, func() (err error) {
		record, err = cluster.VPA.LoadlineV1alpha1().SizingRecords(w.Namespace).Get(t.Context(), "deployment-"+w.Name, metav1.GetOptions{})
		if err == nil && !holds(&record.Status) {
			err = fmt.Errorf("%+v", record.Status)
		}
		return err
	})
	return record
}

// annotatePod sets an annotation of one pod.
func annotatePod(t *testing.T, pod *corev1.Pod, key, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	_, err := cluster.Kube.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// Two of ten pods are tried. They stay two over many passes, a scale-up and a kill of the
// updater, until the canary is promoted.
func TestACanaryStaysAsItIsUntilItIsPromoted(t *testing.T) {
	together(t)
	w := plain(t, "canary", 10)
	before := running(t, w)
	policyFor(t, w.Namespace, loadlinev1alpha1.RolloutModeCanary, observedFor, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(20))}
		s.Rollout.Cooldown, s.Rollout.MaxConcurrent = &metav1.Duration{}, new(int32(0))
	})
	advise(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	awaitSome(t, w, "60m", 2)
	awaitLeftAlone(t, w.Namespace, "NotInCanary")
	_, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Patch(t.Context(), w.Name, types.MergePatchType, []byte(`{"spec":{"replicas":12}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.Replicas = 12
	awaitRecord(t, w, "the end of the round", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) == 1 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundSuccess
	})
	var first []string
	for _, pod := range pods(t, w) {
		if pod.Spec.Containers[0].Resources.Requests.Cpu().String() == "60m" {
			first = append(first, string(pod.UID))
		}
	}
	during(t, 30*time.Second, func() { // ten passes
		require.LessOrEqual(t, countOf(t, w, "60m"), 4, "the two, and new pods, which the webhook sizes as the VPA says")
	})
	require.Subset(t, first, []string{string(before[0].UID)})
	_, err = cluster.VPA.LoadlineV1alpha1().SizingPolicies().Patch(t.Context(), w.Namespace, types.MergePatchType, []byte(`{"spec":{"rollout":{"canary":{"autoPromote":true}}}}`), metav1.PatchOptions{})
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

// A container that is killed for want of memory after a cut has its memory back within
// seconds, and is not cut again.
func TestAChangeThatKillsIsTakenBack(t *testing.T) {
	together(t)
	w := plain(t, "hurt", 3)
	w.Containers[0].MemoryLimit = "100Mi"
	running(t, w)
	policyFor(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, observedFor)
	advise(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	awaitSome(t, w, "60m", 1)
	var hurt *corev1.Pod
	eventually(t, "the node has acted", func() error {
		for _, pod := range pods(t, w) {
			if has := pod.Status.ContainerStatuses[0].Resources; has != nil && has.Requests.Cpu().String() == "60m" {
				hurt = &pod
				return nil
			}
		}
		return errors.New("no pod has its size")
	})
	time.Sleep(2 * time.Second) // a kill in the second of the change proves nothing
	annotatePod(t, hurt, "sim.loadline.dev/oom", "app")
	var killed time.Time
	eventually(t, "the container is killed", func() error {
		pod, err := cluster.Kube.CoreV1().Pods(w.Namespace).Get(t.Context(), hurt.Name, metav1.GetOptions{})
		if err != nil || restarts(pod) == 0 {
			return fmt.Errorf("not yet: %w", err)
		}
		killed = time.Now()
		return nil
	})
	awaitSome(t, w, "60m", 0)
	require.Less(t, time.Since(killed), 10*time.Second)
	record := awaitRecord(t, w, "the revert", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) > 0 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundReverted
	})
	require.Equal(t, "OOMKilled", record.Status.Rounds[0].Reason)
	pod, err := cluster.Kube.CoreV1().Pods(w.Namespace).Get(t.Context(), hurt.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, hurt.UID, pod.UID, "in place")
	require.EqualValues(t, 1, restarts(pod), "and without a restart of ours")
	eventually(t, "the note is taken off", func() error {
		pod, err := cluster.Kube.CoreV1().Pods(w.Namespace).Get(t.Context(), hurt.Name, metav1.GetOptions{})
		if err == nil && pod.Annotations["loadline.dev/resized-at"] != "" {
			err = errors.New("it is there")
		}
		return err
	})
	awaitLeftAlone(t, w.Namespace, "KeptAfterRevert")
	during(t, 30*time.Second, func() { require.Zero(t, countOf(t, w, "60m"), "it does not come back") })
}

// noted returns the pods of a workload whose change is under observation.
func noted(t *testing.T, w harness.Workload) (names []string) {
	t.Helper()
	for _, pod := range pods(t, w) {
		if pod.Annotations["loadline.dev/resized-at"] != "" {
			names = append(names, pod.Name)
		}
	}
	return names
}

// One pod is changed and observed, then comes the pause, then the next.
func TestOneShotChangesOnePodARound(t *testing.T) {
	together(t)
	w := plain(t, "one-shot", 3)
	running(t, w)
	policyFor(t, w.Namespace, loadlinev1alpha1.RolloutModeOneShot, observedFor, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Cooldown = &metav1.Duration{Duration: time.Minute}
	})
	advise(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	awaitSome(t, w, "60m", 1)
	first := awaitRecord(t, w, "the end of the round", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) == 1 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundSuccess
	})
	require.EqualValues(t, 1, first.Status.Rounds[0].Pods)
	require.Equal(t, 1, countOf(t, w, "60m"))
	awaitLeftAlone(t, w.Namespace, "CoolingDown")
	second := awaitRecord(t, w, "the next round", func(s *loadlinev1alpha1.SizingRecordStatus) bool { return len(s.Rounds) == 2 })
	require.False(t, second.Status.Rounds[0].Time.Before(first.Status.CooldownUntil), "%s is before %s", second.Status.Rounds[0].Time, first.Status.CooldownUntil)
	awaitSome(t, w, "60m", 2)
}

// The VPA was made, so nothing but the policy lets its pods be changed.
func TestAPolicyThatIsDeletedLeavesPodsAlone(t *testing.T) {
	together(t)
	w := plain(t, "let-go", 4)
	running(t, w)
	policyFor(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, observedFor)
	awaitMade(t, w.Namespace, "deployment-web")
	eventually(t, "a pod is changed", func() error {
		if len(noted(t, w)) == 0 {
			return errors.New("none is")
		}
		return nil
	})
	// In mode Auto new pods get what is recommended, though the VPA is of mode Off.
	_, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Patch(t.Context(), w.Name, types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "the new pod is sized when it is created", func() error {
		for _, pod := range pods(t, w) {
			if pod.Annotations["vpaUpdates"] != "" && pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "100m" {
				return nil
			}
		}
		return errors.New("none is")
	})
	deletePolicy(t, w.Namespace)
	awaitLeftAlone(t, w.Namespace, "PolicyUnknown")
	before := pods(t, w)
	during(t, 90*time.Second, func() { // past the end of the observation
		for i, pod := range pods(t, w) {
			require.Equal(t, before[i].UID, pod.UID)
			require.Equal(t, before[i].Spec.Containers[0].Resources, pod.Spec.Containers[0].Resources)
		}
	})
}

// An updater that is killed while it changes pods leaves what the next one needs to go on.
func TestARolloutGoesOnAfterAKill(t *testing.T) {
	alone(t)
	t.Parallel() // beside that of the certificate, for which the webhook is stopped
	w := plain(t, "killed", 5)
	running(t, w)
	policyFor(t, w.Namespace, loadlinev1alpha1.RolloutModeCanary, observedFor, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(40))}
		s.Rollout.Cooldown = &metav1.Duration{}
	})
	advise(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	var first []string
	for kills := range 3 { // wherever between note, resize and record it is
		eventually(t, "a change is noted", func() error {
			if first = noted(t, w); len(first) == 0 {
				return errors.New("none is")
			}
			return nil
		})
		time.Sleep(time.Duration(kills) * 20 * time.Millisecond)
		updater.Kill()
		require.NoError(t, updater.Start(t.Context()))
	}
	record := awaitRecord(t, w, "the end of the round", func(s *loadlinev1alpha1.SizingRecordStatus) bool {
		return len(s.Rounds) > 0 && s.Rounds[0].Outcome == loadlinev1alpha1.RoundSuccess
	})
	require.Len(t, record.Status.Rounds, 1)
	require.Len(t, record.Status.CanaryMembers, 2)
	require.Equal(t, 2, countOf(t, w, "60m"))
	require.Zero(t, record.Status.ConsecutiveReverts)
	during(t, 20*time.Second, func() { require.Equal(t, 2, countOf(t, w, "60m")) })
}
