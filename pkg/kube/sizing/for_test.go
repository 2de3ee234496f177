package sizing

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

func watched(t *testing.T, policy *loadlinev1alpha1.SizingPolicy, objects ...runtime.Object) *Policies {
	t.Helper()
	vpa := vpafake.NewSimpleClientset()
	if policy != nil {
		require.NoError(t, vpa.Tracker().Add(policy))
	}
	return watchedIn(t, fake.NewClientset(append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})...), vpa)
}

func watchedIn(t *testing.T, kube *fake.Clientset, vpa *vpafake.Clientset) *Policies {
	t.Helper()
	core, vpas := client.Factory(kube, "", time.Hour, ""), client.VPAFactory(vpa, "")
	resolver := target.New(core, client.NewScales(kube).Scale)
	p, err := Watch(vpas, core, resolver, fleet.Options{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	core.Start(ctx.Done())
	vpas.Start(ctx.Done())
	t.Cleanup(func() { stop(); core.Shutdown(); vpas.Shutdown() })
	require.NoError(t, client.Sync(ctx, p.Synced()))
	require.NoError(t, client.Sync(ctx, resolver.Synced()))
	return p
}

func selecting(tier string) *loadlinev1alpha1.SizingPolicy {
	return &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"shop"}},
		Workloads: []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment",
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}}},
		Rollout: &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeRecommend)},
	}}
}

func autoscaler(name string) *vpav1.VerticalPodAutoscaler {
	return &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: vpav1.VerticalPodAutoscalerSpec{
		TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
	}}
}

func generatedVPA() *vpav1.VerticalPodAutoscaler {
	vpa := autoscaler("deployment-web")
	vpa.Labels = map[string]string{fleet.PolicyLabel: "p"}
	return vpa
}

func TestPoliciesFor_WithoutPolicyOnlyGeneratedVPAsAreSkipped(t *testing.T) {
	var none *Policies
	idle := autoscaler("web")
	idle.Spec.TargetRef = nil
	for name, p := range map[string]*Policies{"nil": none, "none": watched(t, nil), "another's": watched(t, selecting("back"))} {
		require.Equal(t, fleet.Decision{}, p.For(autoscaler("web")), name)
		require.Equal(t, fleet.Decision{}, p.For(idle), name)
		require.Equal(t, reason.PolicyUnknown, p.For(generatedVPA()).Reason, name)
	}
	require.Zero(t, none.Snapshot().Set().Len())
}

func TestPoliciesFor_ModesThatChangePods(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Labels: map[string]string{"tier": "front"}}}
	for _, mode := range []fleet.Mode{fleet.OneShot, fleet.Canary, fleet.Auto} {
		policy := selecting("front")
		policy.Spec.Rollout = &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutMode(mode.String())), Canary: &loadlinev1alpha1.Canary{Percentage: new(int32(10))}}
		p := watched(t, policy, web)
		for _, vpa := range []*vpav1.VerticalPodAutoscaler{autoscaler("web"), generatedVPA()} {
			d := p.For(vpa)
			require.Equal(t, mode, d.Mode)
			require.Empty(t, d.Reason)
			require.Equal(t, convert.RolloutSettings(policy).Hash, d.Policy.RolloutHash)
			workload, known := p.Target(vpa)
			require.True(t, known)
			require.EqualValues(t, "u", workload.UID)
		}
		require.True(t, p.MayChangePods("shop"))
		require.False(t, p.MayChangePods("other"))
	}
	require.False(t, watched(t, selecting("front"), web).MayChangePods("shop"))
	nowhere := autoscaler("web")
	nowhere.Spec.TargetRef = nil
	_, known := watched(t, nil).Target(nowhere)
	require.False(t, known)
}

// Otherwise a workload that is being deleted but waits for a finalizer would leave its policy.
func TestPoliciesFor_DeletedWorkloadKeepsPolicy(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"tier": "front"}}}
	for _, goes := range []bool{false, true} {
		if goes {
			web.DeletionTimestamp, web.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/wait"}
		}
		p := watched(t, selecting("front"), web)
		require.Equal(t, reason.RecommendOnly, p.For(autoscaler("web")).Reason)
		require.Equal(t, reason.RecommendOnly, p.For(generatedVPA()).Reason)
		require.Equal(t, "p", p.Snapshot().Object("p").Name)
	}
}

// Each new pod and each VPA in an iteration of the updater needs one decision.
func TestPoliciesFor_AllocatesNothingWithoutPolicies(t *testing.T) {
	p, vpa := watched(t, nil), autoscaler("web")
	require.Equal(t, fleet.Decision{}, p.For(vpa))
	require.Zero(t, testing.AllocsPerRun(100, func() { p.For(vpa) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { p.MayChangePods("shop") }))
}

// An object with labels too large for the cache may have the opt-out label.
func TestPoliciesFor_UnknownLabelsSkipPods(t *testing.T) {
	many := map[string]string{"sizing": "off"}
	for i := range 100 {
		many[fmt.Sprint("label-", i)] = "x"
	}
	few := map[string]string{"sizing": "off"}
	optOut := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "sizing", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"off"}}}}
	byNamespace := func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.Namespaces, p.Spec.Workloads[0].Selector = loadlinev1alpha1.NamespaceSelection{Selector: optOut}, nil
	}
	byWorkload := func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Workloads[0].Selector = optOut }
	for _, tc := range []struct {
		name                string
		policy              func(*loadlinev1alpha1.SizingPolicy)
		namespace, workload map[string]string
		responsible         bool
		reason              reason.Reason
	}{
		{name: "namespace with 101 labels", policy: byNamespace, namespace: many, responsible: true, reason: reason.PolicyUnknown},
		{name: "namespace with one label", policy: byNamespace, namespace: few},
		{name: "namespace without the label", policy: byNamespace, responsible: true},
		{name: "namespace with 101 labels, selected by name", policy: byWorkload, namespace: many, responsible: true},
		{name: "workload with 101 labels", policy: byWorkload, workload: many, responsible: true, reason: reason.PolicyUnknown},
		{name: "workload with one label", policy: byWorkload, workload: few},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy := selecting("")
			policy.Spec.Rollout.Mode = new(loadlinev1alpha1.RolloutModeAuto)
			tc.policy(policy)
			web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: tc.workload},
				Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
			shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: tc.namespace}}
			kube := fake.NewClientset(web, shop)
			vpas := vpafake.NewSimpleClientset()
			require.NoError(t, vpas.Tracker().Add(policy))

			reader, err := NewReader(t.Context(), kube, vpas, fleet.Options{})
			require.NoError(t, err)
			standing, err := reader.WorkloadStatus(t.Context(), generatedVPA())
			require.NoError(t, err)
			for by, d := range map[string]fleet.Decision{"caches": watchedIn(t, kube, vpas).For(generatedVPA()), "requests": standing.Decision} {
				require.Equal(t, tc.responsible, d.Policy != nil, by)
				if tc.responsible {
					require.Equal(t, tc.reason, d.Reason, by)
				}
			}
		})
	}
}
