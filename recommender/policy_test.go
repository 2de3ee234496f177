package recommender

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/recommender/status"
)

func aPolicy(mode loadlinev1alpha1.RolloutMode) *loadlinev1alpha1.SizingPolicy {
	return &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"ns"}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Rollout:    &loadlinev1alpha1.Rollout{Mode: &mode},
			Recipe:     new("loadline:cpu=tracking"),
		},
	}
}

func generatedVPA(name string) *vpav1.VerticalPodAutoscaler {
	v, off := aVPA("deployment-"+name, name, time.Hour), vpav1.UpdateModeOff
	v.Labels, v.Spec.UpdatePolicy = map[string]string{fleet.PolicyLabel: "all"}, &vpav1.PodUpdatePolicy{UpdateMode: &off}
	return v
}

// setMode changes the rollout mode. An empty mode deletes the policy.
func (w *world) setMode(mode loadlinev1alpha1.RolloutMode) {
	w.t.Helper()
	policies := w.vpas.LoadlineV1alpha1().SizingPolicies()
	if mode == "" {
		require.NoError(w.t, policies.Delete(w.t.Context(), "all", metav1.DeleteOptions{}))
	} else {
		policy := aPolicy(mode)
		if before := w.loop.Policies.Snapshot().Object("all"); before != nil {
			policy.Spec.Recipe = before.Spec.Recipe
		}
		_, err := policies.Update(w.t.Context(), policy, metav1.UpdateOptions{})
		require.NoError(w.t, err)
	}
	require.Eventually(w.t, func() bool {
		p := w.loop.Policies.Snapshot().Object("all")
		return mode == "" && p == nil || p != nil && *p.Spec.Rollout.Mode == mode
	}, time.Minute, time.Millisecond)
}

// Mode changes apply in the next iteration, also with steady estimates.
func TestFollow_ObserveModeHidesRecommendations(t *testing.T) {
	for _, name := range recipe.Names() {
		t.Run(name, func(t *testing.T) { observeAndRecommend(t, name) })
	}
}

func observeAndRecommend(t *testing.T, name string) {
	policy := aPolicy(loadlinev1alpha1.RolloutModeObserve)
	policy.Spec.Recipe = &name
	w := newWorld(t, policy, deployment("web"), deployment("own"),
		aPod("web-1", "web", "a"), aPod("own-1", "own", "a"), generatedVPA("web"), aVPA("mine", "own", time.Hour)).start()
	w.setUsage("web-1", "a", 300, 300)
	w.setUsage("own-1", "a", 300, 300)
	w.iterate(310) // attune needs 48 points of five minutes
	for range 2 {
		provided, message := w.condition("deployment-web", vpav1.RecommendationProvided)
		require.Equal(t, corev1.ConditionFalse, provided)
		require.Contains(t, message, "SizingPolicy all is in mode Observe and publishes no recommendation; ")
		require.Empty(t, w.recommendations("deployment-web"))
		require.NotEmpty(t, w.recommendations("mine"))

		w.setMode(loadlinev1alpha1.RolloutModeRecommend)
		w.iterate(1)
		provided, _ = w.condition("deployment-web", vpav1.RecommendationProvided)
		require.Equal(t, corev1.ConditionTrue, provided)
		require.NotEmpty(t, w.recommendations("deployment-web"), "observed usage counts")

		w.setMode(loadlinev1alpha1.RolloutModeObserve)
		w.iterate(1)
	}
}

// A generated VPA keeps the recipe after the policy is deleted.
func TestPolicyRecipe_AppliesWithoutAnnotation(t *testing.T) {
	asks := aVPA("asks", "third", time.Hour)
	asks.Annotations = map[string]string{recipe.Annotation: "crane"}
	w := newWorld(t, aPolicy(loadlinev1alpha1.RolloutModeRecommend), deployment("web"), deployment("own"), deployment("third"),
		generatedVPA("web"), aVPA("mine", "own", time.Hour), asks).start()
	w.iterate(1)
	serves := func(vpa string) string {
		c := w.loop.Model.Find("ns", vpa).Recipe
		return c.Name + " from " + string(c.Source)
	}
	require.Equal(t, "loadline from policy", serves("deployment-web"))
	require.Equal(t, "loadline from policy", serves("mine"))
	require.Equal(t, "crane from annotation", serves("asks"))
	w.setMode("")
	w.iterate(1)
	require.Equal(t, "loadline from policy", serves("deployment-web"), "nobody knows why the policy is not there")
	require.Equal(t, "vpa from flag", serves("mine"))
}

func TestPolicyStatus_IncludesPodsAndRecords(t *testing.T) {
	vpa, pod := aVPA("mine", "web", time.Hour), aPod("web-1", "web", "a")
	vpa.Status = vpav1.VerticalPodAutoscalerStatus{
		Conditions: []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue}},
		Recommendation: &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
			{ContainerName: "a", Target: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}}},
	}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Controller: new(true)}}
	record := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "deployment-web"}}
	record.Status.Conditions = []metav1.Condition{{Type: "Degraded", Status: metav1.ConditionTrue, Reason: "HighRevertRate"}}
	w := newWorld(t, aPolicy(loadlinev1alpha1.RolloutModeAuto), deployment("web"), vpa, pod, record).start()
	var status loadlinev1alpha1.SizingPolicyStatus
	require.Eventually(t, func() bool {
		p, err := w.vpas.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), "all", metav1.GetOptions{})
		require.NoError(t, err)
		status = p.Status
		return status.Counts != nil
	}, time.Minute, time.Millisecond)
	saved := status.Savings[corev1.ResourceMemory]
	require.Equal(t, "192Mi", saved.String())
	require.Equal(t, int32(1), status.Counts.Pending)
	require.True(t, status.Workloads[0].Degraded)
}

func TestUserVPA_InheritsHistoryOfGeneratedVPA(t *testing.T) {
	w := newWorld(t, aPolicy(loadlinev1alpha1.RolloutModeRecommend), deployment("web"), aPod("web-1", "web", "a"), generatedVPA("web")).start()
	w.setUsage("web-1", "a", 300, 300)
	w.iterate(120)
	before := w.recommendations("deployment-web")
	require.Len(t, before, 1)
	w.start() // only saved history is left
	w.sourceErr = errors.New("no metrics")
	w.iterate(1)
	w.create(aVPA("mine", "web", 0))
	require.Eventually(t, func() bool { return w.loop.Roster.Has("ns", "mine") }, time.Minute, time.Millisecond)
	w.iterate(1)
	after := w.recommendations("mine")
	require.Len(t, after, 1)
	require.InEpsilon(t, before[0].Target.Cpu().MilliValue(), after[0].Target.Cpu().MilliValue(), 0.01)
	require.InEpsilon(t, before[0].Target.Memory().Value(), after[0].Target.Memory().Value(), 0.01)
	require.Len(t, w.loop.Model.Find("ns", "mine").Sketches, 1)
}

func TestRestrictedRecipe_SetsCondition(t *testing.T) {
	policy := aPolicy(loadlinev1alpha1.RolloutModeAuto)
	policy.Spec.Recipe = new("cruisekube")
	policy.Spec.Sharing = &loadlinev1alpha1.Sharing{Mode: new(loadlinev1alpha1.SharingOn), UserVPAs: new(loadlinev1alpha1.SharingUserVPAsRestrict)}
	asks := aVPA("web", "web", time.Hour)
	asks.Annotations = map[string]string{recipe.Annotation: "cruisekube"} // also with the recipe of the policy
	w := newWorld(t, policy, deployment("web"), deployment("own"), asks, aVPA("mine", "own", time.Hour)).start()
	w.iterate(1)
	wrong, message := w.condition("web", status.InvalidRecipe)
	require.Equal(t, corev1.ConditionTrue, wrong)
	require.Equal(t, "annotation loadline.dev/recipe has no effect: SizingPolicy all applies its own recipe to all VPAs (spec.sharing.userVPAs is Restrict)", message)
	wrong, _ = w.condition("mine", status.InvalidRecipe)
	require.Empty(t, wrong)

	w.setRecipe("")
	w.iterate(1)
	wrong, _ = w.condition("web", status.InvalidRecipe)
	require.Empty(t, wrong)
}
