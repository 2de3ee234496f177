package updater

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// scale adds pods with the resources of the template to the Deployment.
func (r *rolling) scale(pods int) {
	r.t.Helper()
	has := len(r.pods())
	objects := deployment(pods, nil)
	for _, o := range objects[2+has:] {
		pod := o.(*corev1.Pod)
		_, err := r.kube.CoreV1().Pods("shop").Create(r.t.Context(), pod, metav1.CreateOptions{})
		require.NoError(r.t, err)
		r.await("the new pod", func(*corev1.Pod) bool { return true }, pod.Name)
	}
	web := objects[0].(*appsv1.Deployment)
	_, err := r.kube.AppsV1().Deployments("shop").Update(r.t.Context(), web, metav1.UpdateOptions{})
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		known, err := r.caches.controllers.Apps().V1().Deployments().Lister().Deployments("shop").Get("web")
		return err == nil && *known.Spec.Replicas == int32(pods) //nolint:gosec // few
	}, time.Minute, time.Millisecond)
}

// An HPA with a target of 70% CPU utilization and a VPA that recommends 8/7 of the usage amplify
// each other into more and smaller pods. With Proceed this happens, with an event each round.
func TestHPA_ExclusionPreventsFeedbackLoop(t *testing.T) {
	const load, utilisation = 210, 0.7 // millicores of all pods
	proceed := loadlinev1alpha1.HPAProceed
	for _, tc := range []struct {
		name   string
		policy *loadlinev1alpha1.SizingPolicy
		grows  bool
	}{
		{name: "LeaveOut", policy: autoPolicy(everyRound), grows: false},
		{name: "Proceed", policy: autoPolicy(everyRound, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.HPA = &proceed }),
			grows: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := roll(t, freeResizes(), append(deployment(3, nil), lowering(generatedVPA()), tc.policy, healthy("n1"), hpa())...)
			first := len(r.pods())
			for round := range 10 {
				after := time.Duration(round) * 70 * time.Minute
				r.recommend(fmt.Sprintf("%dm", load/len(r.pods())*8/7), "50Mi")
				r.at(after)
				r.judge(after + 5*time.Minute)
				r.at(after + 6*time.Minute)
				require.Equal(t, 1, strings.Count(strings.Join(r.drainEvents(), "\n"), "HPAConflict"), "round %d", round)
				requested := 0.0
				for _, p := range r.pods() {
					requested += float64(p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue())
				}
				if average := load / requested; average > 1.1*utilisation { // HPA tolerance of 10%
					r.scale(int(float64(len(r.pods()))*average/utilisation + 0.999))
				}
			}
			require.Equal(t, tc.grows, len(r.pods()) > first, "%d pods", len(r.pods()))
			require.Equal(t, "50Mi", r.pod("web-1-0").Spec.Containers[0].Resources.Requests.Memory().String())
			if !tc.grows {
				require.Equal(t, "100m 100m 100m", r.sizes())
			}
		})
	}
}

// freeResizes returns a config in which resizes take nothing of the budget.
func freeResizes() *Config {
	config := Default()
	config.Disruption.FreeResizes, config.Disruption.MinReplicas = true, 1
	return config
}

func everyRound(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.MaxConcurrent, s.Rollout.Cooldown = new(int32(0)), &metav1.Duration{}
}
