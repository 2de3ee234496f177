package sizing

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// cluster is a fake API server on which listing can be forbidden.
type cluster struct {
	kube     *kubefake.Clientset
	own      *vpafake.Clientset
	policies *Policies
	refuses  map[string]*atomic.Bool // resources that cannot be listed
	watches  []*watch.FakeWatcher
}

// inCluster runs a test in virtual time, with a policy in mode Recommend for namespaces with a team
// label.
func inCluster(t *testing.T, test func(c *cluster), missing ...string) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{refuses: map[string]*atomic.Bool{"sizingpolicies": {}, "namespaces": {}}}
		for _, resource := range missing {
			c.refuses[resource].Store(true)
		}
		labels := map[string]string{"app": "web"}
		c.kube = kubefake.NewClientset(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: labels}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "shop"}}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
		c.own = vpafake.NewSimpleClientset(&loadlinev1alpha1.SizingPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "shop"},
			Spec: loadlinev1alpha1.SizingPolicySpec{
				Namespaces: loadlinev1alpha1.NamespaceSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}},
				Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
				Rollout:    &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeRecommend)},
			},
		})
		for resource, refuses := range c.refuses {
			refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
				return refuses.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
			}
			c.own.PrependReactor("list", resource, refuse)
			c.kube.PrependReactor("list", resource, refuse)
		}
		c.own.PrependWatchReactor("sizingpolicies", func(clienttesting.Action) (bool, watch.Interface, error) {
			w := watch.NewFake()
			c.watches = append(c.watches, w)
			return true, w, nil
		})
		core, own := client.Factory(c.kube, "", client.ControllerResync, ""), client.VPAFactory(c.own, "")
		resolver := target.New(core, client.NewScales(c.kube).Scale)
		var err error
		c.policies, err = Watch(own, core, resolver, fleet.Options{})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		defer func() { stop(); core.Shutdown(); own.Shutdown() }()
		core.Start(ctx.Done())
		own.Start(ctx.Done())
		require.NoError(t, client.Sync(ctx, c.policies.Synced()))
		require.NoError(t, client.Sync(ctx, resolver.Synced()))
		synctest.Wait()
		test(c)
	})
}

func userVPA(namespace string) *vpav1.VerticalPodAutoscaler {
	return &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"},
		Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
	}
}

func TestPolicies_SelectNamespacesByLabel(t *testing.T) {
	inCluster(t, func(c *cluster) {
		require.Equal(t, reason.RecommendOnly, c.policies.For(userVPA("shop")).Reason)
		require.Equal(t, reason.RecommendOnly, c.policies.For(generatedVPA()).Reason)
		require.Equal(t, fleet.Decision{}, c.policies.For(userVPA("other")))
		require.Equal(t, "shop", c.policies.Snapshot().Objects()[0].Name)
	})
}

// A label alone does not make a VPA a generated one, because it may be a copy.
func TestPolicies_CopyOfGeneratedVPAIsUserVPA(t *testing.T) {
	inCluster(t, func(c *cluster) {
		v := generatedVPA()
		v.Namespace = "other"
		require.Equal(t, reason.PolicyUnknown, c.policies.For(v).Reason)
		v.Name = "copy"
		require.Equal(t, fleet.Decision{}, c.policies.For(v))
	})
}

func TestPolicies_ForbiddenMeansNone(t *testing.T) {
	inCluster(t, func(c *cluster) {
		require.Equal(t, fleet.Decision{}, c.policies.For(userVPA("shop")))
		require.Equal(t, reason.PolicyUnknown, c.policies.For(generatedVPA()).Reason)
		require.False(t, c.policies.Readable())
		c.refuses["sizingpolicies"].Store(false)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		require.True(t, c.policies.Readable())
		require.Equal(t, reason.RecommendOnly, c.policies.For(userVPA("shop")).Reason)
	}, "sizingpolicies")
}

// The current spec of a policy is unknown once it can no longer be read.
func TestPolicies_UnreadablePolicySkipsItsWorkloads(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.refuses["sizingpolicies"].Store(true)
		c.watches[len(c.watches)-1].Error(&apierrors.NewResourceExpired("compacted").ErrStatus) // the informer must list again
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, reason.RecommendOnly, c.policies.For(userVPA("shop")).Reason, "a role may be replaced")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, reason.PolicyUnknown, c.policies.For(userVPA("shop")).Reason)
		require.Equal(t, reason.PolicyUnknown, c.policies.For(generatedVPA()).Reason)
		require.Equal(t, fleet.Decision{}, c.policies.For(userVPA("other")))
	})
}

func TestPolicies_UnreadableNamespacesSkipAllWorkloads(t *testing.T) {
	inCluster(t, func(c *cluster) {
		require.Equal(t, reason.PolicyUnknown, c.policies.For(userVPA("shop")).Reason)
		require.Equal(t, reason.PolicyUnknown, c.policies.For(userVPA("other")).Reason)
		c.refuses["namespaces"].Store(false)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		require.Equal(t, reason.RecommendOnly, c.policies.For(userVPA("shop")).Reason)
		require.Equal(t, fleet.Decision{}, c.policies.For(userVPA("other")))
	}, "namespaces")
}

// Both permissions may come from one role and be lost together.
func TestPolicies_LosingAllPermissionsSkipsWorkloads(t *testing.T) {
	inCluster(t, func(c *cluster) {
		for _, refuses := range c.refuses {
			refuses.Store(true)
		}
		c.watches[len(c.watches)-1].Error(&apierrors.NewResourceExpired("compacted").ErrStatus)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		require.Equal(t, reason.PolicyUnknown, c.policies.For(userVPA("shop")).Reason)
	})
}

// The event of a namespace may arrive after events of its workloads.
func TestPolicies_UnknownNamespaceIsSkipped(t *testing.T) {
	inCluster(t, func(c *cluster) { require.Equal(t, reason.PolicyUnknown, c.policies.For(userVPA("new")).Reason) })
}

// A cached decision is reused only while none of its inputs changes.
func TestPolicies_DecisionFollowsChanges(t *testing.T) {
	optedOut := map[string]string{fleet.SkipAnnotation: "true"}
	for name, change := range map[string]func(t *testing.T, c *cluster, vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler{
		"policy": func(t *testing.T, c *cluster, vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
			policy := c.policies.Snapshot().Object("shop").DeepCopy()
			policy.Spec.Rollout.Mode = new(loadlinev1alpha1.RolloutModeAuto)
			c.watches[len(c.watches)-1].Modify(policy)
			return vpa
		},
		"namespace": func(t *testing.T, c *cluster, vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
			_, err := c.kube.CoreV1().Namespaces().Update(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.UpdateOptions{})
			require.NoError(t, err)
			return vpa
		},
		"workload": func(t *testing.T, c *cluster, vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
			_, err := c.kube.AppsV1().Deployments("shop").Update(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: optedOut}}, metav1.UpdateOptions{})
			require.NoError(t, err)
			return vpa
		},
		"workload gone": func(t *testing.T, c *cluster, vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
			require.NoError(t, c.kube.AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
			return vpa
		},
		"VPA": func(_ *testing.T, _ *cluster, vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
			vpa = vpa.DeepCopy()
			vpa.Annotations = optedOut
			return vpa
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				vpa := userVPA("shop")
				before := c.policies.ForTarget(vpa, false)
				require.Equal(t, reason.RecommendOnly, before.Reason)
				require.True(t, before.Selectable)

				vpa = change(t, c, vpa)
				synctest.Wait()
				after := c.policies.ForTarget(vpa, false)
				require.NotEqual(t, []any{before.Decision, before.Selectable}, []any{after.Decision, after.Selectable})
			})
		})
	}
}
