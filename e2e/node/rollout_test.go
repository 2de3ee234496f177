package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

// createPolicy puts a workload under a policy in mode Auto with an observation period of three
// minutes.
func createPolicy(t *testing.T, w harness.Workload, changes ...func(*loadlinev1alpha1.SizingPolicySpec)) {
	t.Helper()
	mode := loadlinev1alpha1.RolloutModeAuto
	policy := &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{w.Namespace}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Rollout:    &loadlinev1alpha1.Rollout{Mode: &mode, MinHistory: &metav1.Duration{}},
			Safety:     &loadlinev1alpha1.Safety{ObservationPeriod: &metav1.Duration{Duration: 3 * time.Minute}},
		},
	}
	for _, change := range changes {
		change(&policy.Spec)
	}
	policies := cluster.VPA.LoadlineV1alpha1().SizingPolicies()
	_, err := policies.Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = policies.Delete(t.Context(), w.Namespace, metav1.DeleteOptions{}) })
}

// createAdvisedVPA creates a VPA with a fixed recommendation that no recommender updates.
func createAdvisedVPA(t *testing.T, w harness.Workload, target corev1.ResourceList) {
	t.Helper()
	createAdvisedVPAWithin(t, w, target, target, target)
}

func createAdvisedVPAWithin(t *testing.T, w harness.Workload, lower, target, upper corev1.ResourceList) {
	t.Helper()
	control(t, w, vpav1.UpdateModeInPlaceOrRecreate, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "nobody"}}
	})
	vpas := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace)
	vpa, err := vpas.Get(t.Context(), w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: lower, Target: target, UpperBound: upper}}}
	_, err = vpas.UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func testRevertsMemoryReductionAfterOOMKill(t *testing.T) {
	t.Parallel()
	// A minute after its start it uses more than the reduced limit, and less than the original one.
	w := run(t, "cut", burner{harness.Container{CPU: "20m", Memory: "120Mi", MemoryLimit: "120Mi"}, "10m", "20Mi:60s,90Mi"})
	createPolicy(t, w)
	before := awaitRunning(t, w)
	createAdvisedVPA(t, w, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("60Mi")})
	limit := func(pod *corev1.Pod) string { return pod.Spec.Containers[0].Resources.Limits.Memory().String() }
	resized(t, w, before, func(pod *corev1.Pod) error {
		if limit(pod) != "60Mi" {
			return errors.New("its limit is " + limit(pod))
		}
		return nil
	})
	var killed time.Time
	eventually(t, longestWait, "the kernel kills it for its memory", func() error {
		pod, err := onlyPod(t.Context(), w)
		if err != nil {
			return err
		}
		s := pod.Status.ContainerStatuses[0]
		for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if end != nil && end.Reason == "OOMKilled" {
				killed = time.Now()
				return nil
			}
		}
		return fmt.Errorf("its state is %+v", s)
	})
	var pod *corev1.Pod
	eventually(t, longestWait, "it has its limit back", func() (err error) {
		if pod, err = onlyPod(t.Context(), w); err == nil && limit(pod) != "120Mi" {
			err = errors.New("its limit is " + limit(pod))
		}
		return err
	})
	require.Less(t, time.Since(killed), 10*time.Second)
	took(t, "cut: killed after a cut, memory given back, since the kill", killed)
	require.Equal(t, before.UID, pod.UID, "the pod was replaced")
	eventually(t, longestWait, "it runs again, the limit is in force and the record says why", func() error {
		pod, err := onlyPod(t.Context(), w)
		if err != nil {
			return err
		}
		if err := checkApplied(pod); err != nil || restarts(pod) == 0 {
			return fmt.Errorf("%s has %d restarts: %w", pod.Name, restarts(pod), err)
		}
		return checkReverted(t.Context(), w, "OOMKilled")
	})
}

func checkReverted(ctx context.Context, w harness.Workload, why string) error {
	record, err := cluster.VPA.LoadlineV1alpha1().SizingRecords(w.Namespace).Get(ctx, "deployment-"+w.Name, metav1.GetOptions{})
	if err == nil && (len(record.Status.Rounds) == 0 || record.Status.Rounds[0].Outcome != loadlinev1alpha1.RoundReverted || record.Status.Rounds[0].Reason != why) {
		err = fmt.Errorf("%+v", record.Status.Rounds)
	}
	return err
}
