package recommender

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/testkit"
)

// Users keep these objects in a repository, so GitOps tools must see no drift.
func TestRecommender_WritesOnlyStatusOfUserObjects(t *testing.T) {
	policy := aPolicy(loadlinev1alpha1.RolloutModeAuto)
	policy.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
	mine, web := aVPA("mine", "own", time.Hour), deployment("web")
	mine.Labels = map[string]string{"app.kubernetes.io/instance": "shop"}
	web.UID = "uid-web"
	w := newWorld(t, policy, web, deployment("own"), aPod("web-1", "web", "a"), aPod("own-1", "own", "a"), mine).start()
	w.setUsage("web-1", "a", 300, 300)
	w.setUsage("own-1", "a", 300, 300)
	served := func() bool {
		p, err := w.vpas.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), "all", metav1.GetOptions{})
		require.NoError(t, err)
		return p.Status.Counts != nil && w.loop.Roster.Has("ns", "deployment-web")
	}
	require.Eventually(t, served, time.Minute, time.Millisecond)
	w.iterate(70)
	require.NotEmpty(t, w.recommendations("deployment-web"))
	require.NotEmpty(t, w.recommendations("mine"))
	w.stop()
	wrote := slices.DeleteFunc(testkit.Writes(append(w.kube.Actions(), w.vpas.Actions()...)...), func(what string) bool {
		return strings.Contains(what, "verticalpodautoscalercheckpoints")
	})
	require.Equal(t, []string{"create verticalpodautoscalers", "patch sizingpolicies/status status", "patch verticalpodautoscalers/status status"}, wrote)

	after := w.vpa("mine").DeepCopy()
	after.Status = mine.Status
	stored, err := w.vpas.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), "all", metav1.GetOptions{})
	require.NoError(t, err)
	stored.Status = policy.Status
	workload, err := w.kube.AppsV1().Deployments("ns").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	for before, now := range map[runtime.Object]runtime.Object{mine: after, policy: stored, web: workload} {
		require.True(t, equality.Semantic.DeepEqual(before, now), "%+v", now)
	}
}
