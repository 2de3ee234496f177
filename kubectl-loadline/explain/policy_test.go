package explain

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/core/fleet"
)

func TestExplainVPA_UsesRecipeOfPolicy(t *testing.T) {
	client, _, _, book := saved(t, "", true)
	vpas := client.AutoscalingV1().VerticalPodAutoscalers("ns")
	v, err := vpas.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	_, err = vpas.Update(t.Context(), v, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = client.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Recipe:     new("crane"), Rollout: &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeRecommend)},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var options fleet.Options
	ask := func(deployment *appsv1.Deployment) string {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"team": "shop"}}}
		a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now(), Policies: options, Kube: kubefake.NewClientset(namespace, deployment)})
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, a.Print(&out))
		return out.String()
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	out := ask(deployment)
	require.Contains(t, out, "VPA ns/web, recipe crane (of the policy: crane)\nSizingPolicy: shop, mode Recommend; running pods are skipped: RecommendOnly\n")
	deployment.Annotations = map[string]string{fleet.SkipAnnotation: "true"}
	require.Contains(t, ask(deployment), "running pods are skipped: OptedOut\n")
	deployment.Annotations = map[string]string{"attune.io/skip": "true"}
	require.Contains(t, ask(deployment), "running pods are skipped: RecommendOnly\n")
	options.Foreign = true
	require.Contains(t, ask(deployment), "running pods are skipped: OptedOut\n")

	policies := client.LoadlineV1alpha1().SizingPolicies()
	wrong, err := policies.Get(t.Context(), "shop", metav1.GetOptions{})
	require.NoError(t, err)
	wrong.Spec.Priority = new(int32(5000))
	_, err = policies.Update(t.Context(), wrong, metav1.UpdateOptions{})
	require.NoError(t, err)
	out = ask(deployment)
	require.Contains(t, out, "VPA ns/web, recipe vpa\n")
	require.Contains(t, out, "! SizingPolicy shop is invalid, and a running recommender keeps its previous recipe: spec.priority: Invalid value: 5000")

	client.PrependReactor("list", "sizingpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "sizingpolicies"}, "", nil)
	})
	out = ask(deployment)
	require.Contains(t, out, "VPA ns/web, recipe vpa\n")
	require.Contains(t, out, "! the responsible SizingPolicy is unknown, so the recipe may be another one: list SizingPolicies: sizingpolicies is forbidden")
}
