package updater

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

// rolling is a world in which a policy lowers the pods of the Deployment "web" from 100m and 100Mi
// to 50m and 50Mi.
type rolling struct {
	*world
	config *Config
}

func newRolling(t *testing.T, pods int, policy *loadlinev1alpha1.SizingPolicy, objects ...runtime.Object) *rolling {
	t.Helper()
	return roll(t, Default(), append(append(deployment(pods, nil), lowering(generatedVPA()), policy, healthy("n1")), objects...)...)
}

func roll(t *testing.T, config *Config, objects ...runtime.Object) *rolling {
	t.Helper()
	r := &rolling{world: newWorld(t, config, objects...), config: config}
	r.now = noon
	return r
}

// restart replaces the updater process, as after kill -9.
func (r *rolling) restart() {
	r.start(r.config)
}

func (r *rolling) edit(change func(*loadlinev1alpha1.SizingPolicySpec)) {
	r.t.Helper()
	policies := r.vpa.LoadlineV1alpha1().SizingPolicies()
	policy, err := policies.Get(r.t.Context(), "fleet", metav1.GetOptions{})
	require.NoError(r.t, err)
	policy = policy.DeepCopy()
	change(&policy.Spec)
	_, err = policies.Update(r.t.Context(), policy, metav1.UpdateOptions{})
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		known := r.caches.policies.Snapshot().Object("fleet")
		return known != nil && apiequality.Semantic.DeepEqual(known.Spec, policy.Spec)
	}, time.Minute, time.Millisecond)
}

// recommend changes the recommendation and waits for the informer cache.
func (r *rolling) recommend(cpu, memory string) {
	r.t.Helper()
	vpas := r.vpa.AutoscalingV1().VerticalPodAutoscalers("shop")
	vpa, err := vpas.Get(r.t.Context(), "deployment-web", metav1.GetOptions{})
	require.NoError(r.t, err)
	vpa = vpa.DeepCopy()
	one := &vpa.Status.Recommendation.ContainerRecommendations[0]
	one.LowerBound, one.Target, one.UpperBound = list(cpu, memory), list(cpu, memory), list(cpu, memory)
	_, err = vpas.Update(r.t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		known, err := r.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister().VerticalPodAutoscalers("shop").Get("deployment-web")
		return err == nil && apiequality.Semantic.DeepEqual(known.Status.Recommendation, vpa.Status.Recommendation)
	}, time.Minute, time.Millisecond)
}

func (r *rolling) records() int {
	all, err := r.vpa.LoadlineV1alpha1().SizingRecords("shop").List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	return len(all.Items)
}

// noted returns the pods under observation.
func (r *rolling) noted() (names []string) {
	for _, p := range r.pods() {
		if convert.HasNotedChange(&p) {
			names = append(names, p.Name)
		}
	}
	return names
}

func (r *rolling) requests(name string) string {
	requests := r.pod(name).Spec.Containers[0].Resources.Requests
	return requests.Cpu().String() + " " + requests.Memory().String()
}

func lowering(vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	one := &vpa.Status.Recommendation.ContainerRecommendations[0]
	one.LowerBound, one.Target, one.UpperBound = list("40m", "40Mi"), list("50m", "50Mi"), list("60m", "60Mi")
	return vpa
}

func healthy(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: list("16", "64Gi"),
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

// at runs an iteration at a time after noon and returns the changed pods.
func (r *rolling) at(after time.Duration) (changed []string) {
	r.t.Helper()
	before := map[string]string{}
	for _, p := range r.pods() {
		before[p.Name] = p.Annotations[convert.ResizedAtAnnotation]
	}
	r.runOnce(noon.Add(after))
	for _, p := range r.pods() {
		if note := p.Annotations[convert.ResizedAtAnnotation]; note != "" && note != before[p.Name] {
			changed = append(changed, p.Name)
			r.settled(p.Name)
		}
	}
	return changed
}

func (r *rolling) pods() []corev1.Pod {
	all, err := r.kube.CoreV1().Pods("shop").List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	return all.Items
}

// judge runs the observer for all noted pods at a time after noon.
func (r *rolling) judge(after time.Duration) {
	r.t.Helper()
	for _, name := range r.noted() {
		_, err := r.sync(name, after)
		require.NoError(r.t, err)
		r.settled(name)
	}
}

func (r *rolling) sync(name string, after time.Duration) (time.Duration, error) {
	r.now = noon.Add(after)
	return r.observer.Sync(r.t.Context(), cache.NewObjectName("shop", name), r.now)
}

// settled waits until the informer cache has the current pod.
func (r *rolling) settled(name string) {
	r.t.Helper()
	is := r.pod(name)
	r.await("the pod", func(c *corev1.Pod) bool {
		return c.Annotations[convert.ResizedAtAnnotation] == is.Annotations[convert.ResizedAtAnnotation] &&
			slices.EqualFunc(c.Spec.Containers, is.Spec.Containers, func(a, b corev1.Container) bool {
				return apiequality.Semantic.DeepEqual(a.Resources, b.Resources)
			})
	}, name)
}

// sizes returns the CPU requests of all pods, by name.
func (r *rolling) sizes() string {
	var all []string
	for _, p := range r.pods() {
		all = append(all, p.Spec.Containers[0].Resources.Requests.Cpu().String())
	}
	return strings.Join(all, " ")
}

func (r *rolling) record() loadlinev1alpha1.SizingRecordStatus {
	r.t.Helper()
	record, err := r.vpa.LoadlineV1alpha1().SizingRecords("shop").Get(r.t.Context(), "deployment-web", metav1.GetOptions{})
	require.NoError(r.t, err)
	require.Equal(r.t, []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web", Controller: new(false), BlockOwnerDeletion: new(false)}}, record.OwnerReferences)
	return record.Status
}

func (r *rolling) restarted(name string, times int32) {
	r.t.Helper()
	r.change(name, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: times}}
	})
}

func (r *rolling) skipped(reason string) int {
	return int(r.value("loadline_updater_skipped_pods", "reason", reason))
}

func TestAutoMode_ChangesOnePodAtATime(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	require.Equal(t, "50m 100m 100m", r.sizes())
	require.Equal(t, `{"app":{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{"memory":"200Mi"},"target":{"requests":{"cpu":"50m","memory":"50Mi"},"limits":{"memory":"100Mi"}},"restarts":0,"ready":true}}`,
		r.pod("web-1-0").Annotations[convert.OriginalAnnotation])
	require.Equal(t, 2, r.skipped("UnderObservation"))
	require.EqualValues(t, 1, r.value("vpa_updater_in_place_updated_pods_total", "vpa_name", "deployment-web"))
	s := r.record()
	require.Equal(t, loadlinev1alpha1.RolloutModeAuto, s.Mode)
	require.Len(t, s.Rounds, 1)
	require.EqualValues(t, 1, s.Rounds[0].Pods)
	require.Empty(t, s.Rounds[0].Outcome)

	r.judge(4 * time.Minute)
	require.Empty(t, r.at(4*time.Minute), "it is observed for five")
	require.EqualValues(t, 1, r.value("loadline_updater_observed_pods"))
	r.judge(5 * time.Minute)
	require.NotContains(t, r.pod("web-1-0").Annotations, convert.ResizedAtAnnotation)
	require.NotContains(t, r.pod("web-1-0").Annotations, convert.OriginalAnnotation)
	require.Equal(t, []string{"web-1-1"}, r.at(6*time.Minute))
	r.judge(11 * time.Minute)
	require.Equal(t, []string{"web-1-2"}, r.at(12*time.Minute))
	r.judge(17 * time.Minute)
	require.Empty(t, r.at(18*time.Minute))
	require.Equal(t, "50m 50m 50m", r.sizes())
	s = r.record()
	require.Len(t, s.Rounds, 1, "one target is one round")
	require.EqualValues(t, 3, s.Rounds[0].Pods)
	require.Equal(t, loadlinev1alpha1.RoundSuccess, s.Rounds[0].Outcome)
	require.Equal(t, noon.Add(78*time.Minute), s.CooldownUntil.UTC())
	require.Equal(t, "50m", s.Kept[0].Requests["cpu"].ToUnstructured())
}

func TestRevert_OfHarmfulChange(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 1)
	r.judge(time.Minute)
	require.Equal(t, "50m 100m 100m", r.sizes(), "one restart may be anything")
	r.restarted("web-1-0", 2)
	r.drainEvents()
	r.judge(2 * time.Minute)
	require.Equal(t, "100m 100m 100m", r.sizes())
	require.Equal(t, "200Mi", r.pod("web-1-0").Spec.Containers[0].Resources.Limits.Memory().String())
	require.NotContains(t, r.pod("web-1-0").Annotations, convert.ResizedAtAnnotation)
	require.EqualValues(t, 1, r.value("loadline_updater_reverts_total", "reason", "Restarts", "vpa_name", "deployment-web"))
	require.Equal(t, []string{
		"Warning Reverted Change reverted, a container restarts repeatedly map[loadline.dev/pod:web-1-0 loadline.dev/sizes:app cpu 50m -> 100m, app memory 50Mi -> 100Mi, app limit memory 100Mi -> 200Mi]",
		"Warning Reverted A pod: Change reverted, a container restarts repeatedly map[loadline.dev/pod:web-1-0 loadline.dev/sizes:app cpu 50m -> 100m, app memory 50Mi -> 100Mi, app limit memory 100Mi -> 200Mi]",
	}, r.drainEvents())
	s := r.record()
	require.Equal(t, loadlinev1alpha1.RoundReverted, s.Rounds[0].Outcome)
	require.Equal(t, "Restarts", s.Rounds[0].Reason)
	require.EqualValues(t, 1, s.ConsecutiveReverts)
	require.Equal(t, noon.Add(2*time.Minute+2*time.Hour), s.CooldownUntil.UTC())

	require.Empty(t, r.at(3*time.Minute))
	require.Equal(t, 0, r.skipped("CoolingDown"), "nobody is to be changed")
	require.Equal(t, 3, r.skipped("RevertBackoff"))
	require.Empty(t, r.at(6*24*time.Hour))
	require.Equal(t, "100m 100m 100m", r.sizes())
	require.Equal(t, []string{"web-1-0"}, r.at(7*24*time.Hour+3*time.Minute), "after a week it is tried again")
}

func TestOneShotMode_ChangesOnePodPerRound(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeOneShot))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.judge(5 * time.Minute)
	require.Empty(t, r.at(6*time.Minute))
	require.Equal(t, 2, r.skipped("CoolingDown"))
	require.Empty(t, r.at(65*time.Minute))
	require.Equal(t, []string{"web-1-1"}, r.at(66*time.Minute))
}

func TestCanary_IsPromoted(t *testing.T) {
	policy := sizingPolicy(loadlinev1alpha1.RolloutModeCanary, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(50)), AutoPromote: new(true)}
		s.Rollout.MaxConcurrent, s.Rollout.Cooldown = new(int32(0)), &metav1.Duration{}
	})
	r := newRolling(t, 4, policy)
	require.Equal(t, []string{"web-1-0", "web-1-1"}, r.at(0))
	require.Equal(t, 2, r.skipped("NotInCanary"))
	require.Equal(t, loadlinev1alpha1.RolloutPhaseCanary, r.record().Phase)
	require.Len(t, r.record().CanaryMembers, 2)
	r.judge(5 * time.Minute)
	r.drainEvents()
	require.Equal(t, []string{"web-1-2", "web-1-3"}, r.at(6*time.Minute))
	require.Equal(t, loadlinev1alpha1.RolloutPhaseFullRollout, r.record().Phase)
	require.Contains(t, r.drainEvents(), "Normal CanaryPromoted Canary promoted: all pods may be changed")
}

// The note is written before the change, and its event must not end the change.
func TestObservation_WaitsForPendingChange(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	pod := r.pod("web-1-0")
	pod.Spec.Containers[0].Resources.Requests = list("100m", "100Mi") // as before the resize
	_, err := r.kube.CoreV1().Pods("shop").Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	r.await("the pod as it was", func(p *corev1.Pod) bool { return p.Spec.Containers[0].Resources.Requests.Cpu().String() == "100m" }, "web-1-0")
	r.judge(20 * time.Second)
	require.Contains(t, r.pod("web-1-0").Annotations, convert.ResizedAtAnnotation)
	r.judge(31 * time.Second)
	require.NotContains(t, r.pod("web-1-0").Annotations, convert.ResizedAtAnnotation, "it was never made")
}

func hpa() *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		Metrics:        []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU}}},
	}}
}

func TestHPA_ScaledResourceIsExcluded(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), hpa())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	require.Equal(t, "100m 100m", r.sizes(), "CPU stays")
	require.Equal(t, "50Mi", r.pod("web-1-0").Spec.Containers[0].Resources.Requests.Memory().String())
	require.Contains(t, strings.Join(r.drainEvents(), "\n"), "HPAConflict")
	r.judge(5 * time.Minute)
	r.at(6 * time.Minute)
	require.Equal(t, 1, r.skipped("ManagedByHPA"), "what is recommended for it is not all that it gets")

	require.Contains(t, newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), hpa()).dryRunOutput(), "would emit event on VPA shop/deployment-web: HPAConflict")

	proceed := loadlinev1alpha1.HPAProceed
	r = newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.HPA = &proceed }), hpa())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	require.Equal(t, "50m 100m", r.sizes())
	require.Contains(t, strings.Join(r.drainEvents(), "\n"), "HPAConflict")
}
