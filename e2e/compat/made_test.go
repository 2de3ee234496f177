package compat

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/vpa"
	reference "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	controllerfetcher "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target/controller_fetcher"
	vpautil "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	corefleet "loadline.dev/loadline/pkg/core/fleet"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/testkit"
	sizingpolicies "loadline.dev/loadline/recommender/policies"
)

func generatedVPA(t *testing.T) *reference.VerticalPodAutoscaler {
	t.Helper()
	kube := kubefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testkit.Namespace}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.Namespace, Name: "web", UID: "uid-web"}})
	vpas := vpafake.NewSimpleClientset(&loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{testkit.Namespace}},
		Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
		Rollout:    &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeAuto)},
	}})
	core, own := client.Factory(kube, "", time.Hour, ""), client.VPAFactory(vpas, "")
	workloads := target.New(core, client.NewScales(kube).Scale)
	known, err := sizing.Watch(own, core, workloads, corefleet.Options{})
	require.NoError(t, err)
	records, err := sizingpolicies.WatchRecords(own)
	require.NoError(t, err)
	all, pods := own.Autoscaling().V1().VerticalPodAutoscalers(), core.Core().V1().Pods()
	synced := map[string]cache.InformerSynced{"verticalpodautoscalers": all.Informer().HasSynced, "pods": pods.Informer().HasSynced}
	ctx, stop := context.WithCancel(t.Context())
	core.Start(ctx.Done())
	own.Start(ctx.Done())
	t.Cleanup(func() { stop(); core.Shutdown(); own.Shutdown() })
	for _, each := range []map[string]cache.InformerSynced{synced, known.Synced(), records.Synced(), workloads.Synced()} {
		require.NoError(t, client.Sync(ctx, each))
	}
	(&sizingpolicies.Keeper{
		Client: vpas, Policies: known, Records: records, VPAs: all.Lister(), Pods: pods.Lister(), Workloads: workloads, Name: "default",
		Metrics: sizingpolicies.NewMetrics(prometheus.NewRegistry()),
	}).RunOnce(ctx, time.Now())
	made, err := vpas.AutoscalingV1().VerticalPodAutoscalers(testkit.Namespace).Get(ctx, "deployment-web", metav1.GetOptions{})
	require.NoError(t, err)
	made.Status = testkit.VPA("", testkit.Recommend("c", "cpu=2")).Status
	text, err := json.Marshal(made)
	require.NoError(t, err)
	read := &reference.VerticalPodAutoscaler{}
	require.NoError(t, json.Unmarshal(text, read))
	return read
}

// owned resolves every pod to the Deployment "web", behind upstream's interfaces.
type owned struct{}

func (owned) Fetch(context.Context, *reference.VerticalPodAutoscaler) (labels.Selector, error) {
	return labels.Everything(), nil
}

func (owned) FindTopMostWellKnownOrScalable(_ context.Context, c *controllerfetcher.ControllerKeyWithAPIVersion) (*controllerfetcher.ControllerKeyWithAPIVersion, error) {
	top := *c
	top.Kind, top.Name = "Deployment", "web"
	return &top, nil
}

// After a return to upstream its webhook must match no generated VPA, and its updater must ignore
// them.
func TestGeneratedVPA_IgnoredByUpstream(t *testing.T) {
	made := generatedVPA(t)
	require.Equal(t, reference.UpdateModeOff, vpautil.GetUpdateMode(made))
	require.False(t, vpautil.HasStartupBoost(made))
	found := func() *reference.VerticalPodAutoscaler {
		index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{vpautil.TargetRefIndex: vpautil.TargetRefIndexFunc})
		require.NoError(t, index.Add(made))
		return vpa.NewMatcher(index, owned{}, owned{}).GetMatchingVPA(t.Context(), testkit.Pod("p", testkit.Container("c", "cpu=1", "")))
	}
	require.Nil(t, found())
	recreate := reference.UpdateModeRecreate
	made.Spec.UpdatePolicy.UpdateMode = &recreate
	require.NotNil(t, found(), "as of any other mode it would")
}
