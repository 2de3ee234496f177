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

// scale makes the Deployment have more pods, of the size that its template has.
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

// A HorizontalPodAutoscaler that wants 70 % of the requested CPU in use, and a VPA that recommends
// what a pod uses and a seventh: each answers the other, and there are more and smaller pods each
// time. Left out, nothing of that happens; with Proceed it does, and is said each time.
func TestAHorizontalPodAutoscalerBesideARollout(t *testing.T) {
	const load, utilisation = 210, 0.7 // millicores of all pods together
	proceed := loadlinev1alpha1.HPAProceed
	for name, c := range map[string]struct {
		policy *loadlinev1alpha1.SizingPolicy
		grows  bool
	}{
		"LeaveOut": {auto(everyRound), false},
		"Proceed":  {auto(everyRound, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.HPA = &proceed }), true},
	} {
		r := roll(t, freely(), append(deployment(3, nil), lowering(madeVPA()), c.policy, healthy("n1"), hpa())...)
		first := len(r.pods())
		for round := range 10 {
			after := time.Duration(round) * 70 * time.Minute
			r.recommend(fmt.Sprintf("%dm", load/len(r.pods())*8/7), "50Mi")
			r.at(after)
			r.judge(after + 5*time.Minute)
			r.at(after + 6*time.Minute)
			require.Equal(t, 1, strings.Count(strings.Join(r.told(), "\n"), "HPAConflict"), "%s, round %d", name, round)
			requested := 0.0
			for _, p := range r.pods() {
				requested += float64(p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue())
			}
			if average := load / requested; average > 1.1*utilisation { // it tolerates a tenth
				r.scale(int(float64(len(r.pods()))*average/utilisation + 0.999))
			}
		}
		require.Equal(t, c.grows, len(r.pods()) > first, "%s: %d pods", name, len(r.pods()))
		require.Equal(t, "50Mi", r.pod("web-1-0").Spec.Containers[0].Resources.Requests.Memory().String(), name)
		if !c.grows {
			require.Equal(t, "100m 100m 100m", r.sizes())
		}
	}
}

// freely lets resizes take nothing of the budget of a workload.
func freely() *Config {
	config := Default()
	config.Disruption.FreeResizes, config.Disruption.MinReplicas = true, 1
	return config
}

// everyRound makes all pods be changed at once, in each round.
func everyRound(s *loadlinev1alpha1.SizingPolicySpec) {
	s.Rollout.MaxConcurrent, s.Rollout.Cooldown = new(int32(0)), &metav1.Duration{}
}
