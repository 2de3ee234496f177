package policies

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/testkit"
)

// cluster runs a keeper on fake API servers in a synctest bubble.
type cluster struct {
	t      *testing.T
	kube   *kubefake.Clientset
	vpas   *vpafake.Clientset
	fleets testkit.Fleets
	keeper *Keeper
}

func runInCluster(t *testing.T, test func(c *cluster), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, objects...)
		c.start()
		test(c)
	})
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	c := &cluster{t: t}
	var kube, vpas []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *vpav1.VerticalPodAutoscaler, *loadlinev1alpha1.SizingPolicy, *loadlinev1alpha1.SizingRecord:
			vpas = append(vpas, o)
		default:
			kube = append(kube, o)
		}
	}
	kube = append(kube, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "shop"}}})
	c.kube, c.vpas = kubefake.NewClientset(kube...), vpafake.NewSimpleClientset(vpas...)
	return c
}

func (c *cluster) start() {
	ctx, stop := context.WithCancel(c.t.Context())
	core, own := client.Factory(c.kube, "", client.ControllerResync, ""), client.VPAFactory(c.vpas, "")
	scales := client.NewScales(c.fleets.In(c.kube))
	resolver := target.New(core, scales.Scale)
	policies, err := sizing.Watch(own, core, resolver, fleet.Options{OwnNamespace: "loadline"})
	require.NoError(c.t, err)
	records, err := WatchRecords(own)
	require.NoError(c.t, err)
	vpas, pods := own.Autoscaling().V1().VerticalPodAutoscalers(), core.Core().V1().Pods()
	vpas.Informer()
	require.NoError(c.t, policies.WatchPods(pods.Informer()))
	core.Start(ctx.Done())
	own.Start(ctx.Done())
	c.t.Cleanup(func() { stop(); core.Shutdown(); own.Shutdown() })
	require.NoError(c.t, client.Sync(ctx, policies.Synced()))
	require.NoError(c.t, client.Sync(ctx, records.Synced()))
	require.NoError(c.t, client.Sync(ctx, resolver.Synced()))
	synctest.Wait()
	c.keeper = &Keeper{
		Client: c.vpas, Policies: policies, Records: records, VPAs: vpas.Lister(), Pods: pods.Lister(), Workloads: resolver, Kinds: scales, Name: "default",
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

func (c *cluster) runOnce(after time.Duration) {
	time.Sleep(after)
	synctest.Wait()
	c.keeper.RunOnce(c.t.Context(), time.Now())
	synctest.Wait()
}

// runWithRefresh runs iterations while custom kinds are refreshed in the background.
func (c *cluster) runWithRefresh(after time.Duration) {
	ctx, stop := context.WithCancel(c.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.keeper.Workloads.Run(ctx, nil)
	}()
	for range 4 { // requests keep entries active
		c.runOnce(after / 4)
	}
	stop()
	<-ended
}

// vpasByName prefixes names outside of namespace shop with the namespace.
func (c *cluster) vpasByName() map[string]*vpav1.VerticalPodAutoscaler {
	list, err := c.vpas.AutoscalingV1().VerticalPodAutoscalers("").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	all := map[string]*vpav1.VerticalPodAutoscaler{}
	for i := range list.Items {
		v := &list.Items[i]
		all[strings.TrimPrefix(v.Namespace+"/", "shop/")+v.Name] = v
	}
	return all
}

func (c *cluster) policy(name string) *loadlinev1alpha1.SizingPolicy {
	p, err := c.vpas.LoadlineV1alpha1().SizingPolicies().Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return p
}

func (c *cluster) change(name string, change func(*loadlinev1alpha1.SizingPolicySpec)) {
	p := c.policy(name)
	change(&p.Spec)
	_, err := c.vpas.LoadlineV1alpha1().SizingPolicies().Update(c.t.Context(), p, metav1.UpdateOptions{})
	require.NoError(c.t, err)
	synctest.Wait()
}

func (c *cluster) ready(name string) metav1.Condition {
	conditions := c.policy(name).Status.Conditions
	at := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == "Ready" })
	require.GreaterOrEqual(c.t, at, 0)
	return conditions[at]
}

// shopPolicy returns a policy for all Deployments of namespace shop.
func shopPolicy(changes ...func(*loadlinev1alpha1.SizingPolicy)) *loadlinev1alpha1.SizingPolicy {
	p := &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 1},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Rollout:    &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeRecommend)},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func deployment(name string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	for _, change := range changes {
		change(d)
	}
	return d
}

func newUserVPA(name, of string) *vpav1.VerticalPodAutoscaler {
	return &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: of}},
	}
}

func TestRunOnce_CreatesVPAsForSelectedWorkloads(t *testing.T) {
	off, auto := vpav1.ContainerScalingModeOff, vpav1.ContainerScalingModeAuto
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.Workloads = []loadlinev1alpha1.WorkloadSelection{
			{APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "StatefulSet"},
			{APIVersion: "apps/v1", Kind: "DaemonSet"}, {APIVersion: "batch/v1", Kind: "CronJob"},
		}
		p.Spec.VPAMetadata = &loadlinev1alpha1.VPAMetadata{Labels: map[string]string{"owner": "platform"}, Annotations: map[string]string{"why": "fleet"}}
		p.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "proxy", Mode: &auto}, {ContainerName: "*", Mode: &auto}}}
		p.Spec.Containers = &loadlinev1alpha1.ContainerSelection{Exclude: []string{"proxy"}}
	})
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}}
	}
	other := deployment("elsewhere", func(d *appsv1.Deployment) { d.Namespace = "other" })
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		made := c.vpasByName()
		require.Len(t, made, 4)
		for name, ref := range map[string]autoscalingv1.CrossVersionObjectReference{
			"deployment-web": {APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, "statefulset-db": {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"},
			"daemonset-log": {APIVersion: "apps/v1", Kind: "DaemonSet", Name: "log"}, "cronjob-report": {APIVersion: "batch/v1", Kind: "CronJob", Name: "report"},
		} {
			v := made[name]
			require.NotNil(t, v, name)
			require.Equal(t, &ref, v.Spec.TargetRef)
			require.Equal(t, []metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: types.UID("uid-" + ref.Name)}}, v.OwnerReferences)
			require.Equal(t, map[string]string{"loadline.dev/policy": "shop", "owner": "platform"}, v.Labels, "nothing is copied from the workload")
			require.Equal(t, map[string]string{"why": "fleet"}, v.Annotations)
			require.Equal(t, vpav1.UpdateModeOff, *v.Spec.UpdatePolicy.UpdateMode)
			both := &[]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} // Headlamp fails without them
			require.Equal(t, []vpav1.ContainerResourcePolicy{{ContainerName: "*", Mode: &auto, ControlledResources: both}, {ContainerName: "proxy", Mode: &off, ControlledResources: both}}, v.Spec.ResourcePolicy.ContainerPolicies)
			require.Empty(t, v.Spec.Recommenders)
		}
		c.vpas.ClearActions()
		c.runOnce(time.Hour)
		c.runOnce(time.Hour)
		require.Empty(t, vpaWrites(c), "nothing is left to do")
		status := c.policy("shop").Status
		require.Equal(t, &loadlinev1alpha1.PolicyCounts{Selected: 4}, status.Counts)
		require.Len(t, status.Workloads, 4)
		require.Equal(t, metav1.ConditionTrue, c.ready("shop").Status)
		require.Equal(t, 4.0, testutil.ToFloat64(c.keeper.Metrics.Workloads.WithLabelValues("shop", "Recommend", "")))
		require.Equal(t, 4.0, testutil.ToFloat64(c.keeper.Metrics.VPAs.WithLabelValues("created")))
	}, policy, other, deployment("web"), &appsv1.StatefulSet{ObjectMeta: meta("db")}, &appsv1.DaemonSet{ObjectMeta: meta("log")}, &batchv1.CronJob{ObjectMeta: meta("report")})
}

func vpaWrites(c *cluster) (verbs []string) {
	for _, a := range c.vpas.Actions() {
		if a.GetResource().Resource == "verticalpodautoscalers" && a.GetVerb() != "list" && a.GetVerb() != "watch" {
			verbs = append(verbs, a.GetVerb())
		}
	}
	return verbs
}

func TestUserVPA_ReplacesGeneratedVPA(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.Contains(t, c.vpasByName(), "deployment-web")
		_, err := c.vpas.AutoscalingV1().VerticalPodAutoscalers("shop").Create(t.Context(), newUserVPA("mine", "web"), metav1.CreateOptions{})
		require.NoError(t, err)
		c.runOnce(time.Minute)
		marked := c.vpasByName()["deployment-web"]
		require.Contains(t, marked.Annotations, fleet.UnselectedAnnotation)
		c.runOnce(23 * time.Hour)
		require.Contains(t, c.vpasByName(), "deployment-web")
		c.runOnce(time.Hour)
		require.NotContains(t, c.vpasByName(), "deployment-web")
		require.Contains(t, c.vpasByName(), "mine")
		require.Equal(t, int32(1), c.policy("shop").Status.Counts.Selected, "the policy is responsible for the workload all the same")
	}, shopPolicy(), deployment("web"))
}

func TestGeneratedVPA_DeletedADayAfterPolicy(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Exclude = []string{"shop"} })
		c.runOnce(time.Minute)
		require.Contains(t, c.vpasByName()["deployment-web"].Annotations, fleet.UnselectedAnnotation)
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Exclude = nil })
		c.runOnce(time.Minute)
		require.NotContains(t, c.vpasByName()["deployment-web"].Annotations, fleet.UnselectedAnnotation, "an edit for a moment costs nothing")
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.Paused = new(true) })
		c.runOnce(48 * time.Hour)
		c.runOnce(48 * time.Hour)
		require.Contains(t, c.vpasByName(), "deployment-web", "nothing goes while the policy is paused")
		require.NoError(t, c.vpas.LoadlineV1alpha1().SizingPolicies().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		c.runOnce(time.Minute)
		c.runOnce(24 * time.Hour)
		require.Empty(t, c.vpasByName())
		require.Equal(t, 1.0, testutil.ToFloat64(c.keeper.Metrics.VPAs.WithLabelValues("removed")))
	}, shopPolicy(), deployment("web"))
}

func TestGeneratedVPA_KeptWhilePoliciesUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newUserVPA("deployment-web", "web")
		v.Labels, v.Annotations = map[string]string{fleet.PolicyLabel: "shop"}, map[string]string{fleet.UnselectedAnnotation: "1999-01-01T00:00:00Z"}
		c := newCluster(t, v, deployment("web"))
		var there atomic.Bool
		c.vpas.PrependReactor("list", "sizingpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !there.Load(), nil, apierrors.NewNotFound(schema.GroupResource{Resource: "sizingpolicies"}, "")
		})
		c.start()
		c.runOnce(time.Minute)
		require.Contains(t, c.vpasByName(), "deployment-web")
		there.Store(true)
		c.runOnce(6 * time.Minute)
		require.Contains(t, c.vpasByName(), "deployment-web", "policies may be created in a moment")
		c.runOnce(time.Hour)
		require.Empty(t, c.vpasByName(), "the definition was found within five minutes, and there is no policy")
	})
}

func TestRunOnce_ReportsNameConflict(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.Empty(t, vpaWrites(c))
		status := c.policy("shop").Status
		require.Equal(t, []string{"VPA shop/deployment-web cannot be generated for Deployment web: another VPA has this name; rename or delete it"}, status.Errors)
		require.Equal(t, int32(1), status.Counts.Refused)
	}, shopPolicy(), deployment("web"), newUserVPA("deployment-web", "other"))
}

func TestRunOnce_RefusedCreationsBlockOneNamespace(t *testing.T) {
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Namespaces.Names = []string{"shop", "second"} })
	second := deployment("web", func(d *appsv1.Deployment) { d.Namespace = "second" })
	runInCluster(t, func(c *cluster) {
		refuses, asked := true, 0
		c.vpas.PrependReactor("create", "verticalpodautoscalers", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() != "shop" {
				return false, nil, nil
			}
			asked++
			return refuses, nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("policy says no"))
		})
		for range 60 { // ten minutes
			c.runOnce(interval)
		}
		require.Equal(t, 4, asked, "after a minute, two and four more")
		require.Len(t, c.vpasByName(), 1)
		errs := c.policy("shop").Status.Errors
		require.Len(t, errs, 1, "however many workloads were refused")
		require.True(t, strings.HasPrefix(errs[0], "VPAs cannot be written in namespace shop: ") && strings.HasSuffix(errs[0], "policy says no"), errs[0])
		require.Equal(t, int32(2), c.policy("shop").Status.Counts.Refused)
		refuses = false
		for range 60 {
			c.runOnce(interval)
		}
		require.Len(t, c.vpasByName(), 3)
		require.Empty(t, c.policy("shop").Status.Errors)
	}, policy, deployment("api"), deployment("web"), second)
}

func TestKeeper_OneNamespaceDoesNotDelayOthers(t *testing.T) {
	limited := apierrors.NewTooManyRequests("not sent: namespace used its write limit", 1)
	limited.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "LoadlineWriteLimit"}}
	busy := apierrors.NewTooManyRequests("too many requests", 1)
	all := []string{"a", "b", "c", "d", "e"}
	for _, tc := range []struct {
		name    string
		answer  error
		failing []string
		asked   int // requests for failing namespaces per iteration
		made    int
	}{
		{name: "write limit of a namespace", answer: limited, failing: all[:1], asked: 1, made: 8},
		{name: "write limit of many namespaces", answer: limited, failing: all[:4], asked: 4, made: 2},
		{name: "busy for a namespace", answer: busy, failing: all[:1], asked: 1, made: 8},
		{name: "busy for all", answer: busy, failing: all, asked: maxUnanswered, made: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := []runtime.Object{shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Namespaces.Names = all })}
			for _, namespace := range all {
				for _, name := range []string{"web", "api"} {
					objects = append(objects, deployment(name, func(d *appsv1.Deployment) { d.Namespace = namespace }))
				}
			}
			runInCluster(t, func(c *cluster) {
				asked, made := 0, 0
				c.vpas.PrependReactor("create", "verticalpodautoscalers", func(a clienttesting.Action) (bool, runtime.Object, error) {
					if slices.Contains(tc.failing, a.GetNamespace()) {
						asked++
						return true, nil, tc.answer
					}
					made++
					return false, nil, nil
				})
				c.runOnce(0)
				require.Equal(t, tc.asked, asked)
				require.Equal(t, tc.made, made)
			}, objects...)
		})
	}
}

func TestGeneratedVPA_RestoredToPolicy(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		v := c.vpasByName()["deployment-web"]
		auto := vpav1.UpdateModeRecreate
		v.Spec.UpdatePolicy.UpdateMode, v.OwnerReferences = &auto, nil
		v.Spec.StartupBoost = &vpav1.StartupBoost{}
		v.Labels["mine"], v.Annotations = "stays", map[string]string{"mine": "stays"}
		_, err := c.vpas.AutoscalingV1().VerticalPodAutoscalers("shop").Update(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.VPAMetadata = &loadlinev1alpha1.VPAMetadata{Labels: map[string]string{"owner": "platform"}}
		})
		c.runOnce(time.Minute)
		v = c.vpasByName()["deployment-web"]
		require.Equal(t, vpav1.UpdateModeOff, *v.Spec.UpdatePolicy.UpdateMode)
		require.Nil(t, v.Spec.StartupBoost)
		require.Equal(t, types.UID("uid-web"), v.OwnerReferences[0].UID)
		require.Equal(t, map[string]string{"loadline.dev/policy": "shop", "owner": "platform", "mine": "stays"}, v.Labels)
		require.Equal(t, map[string]string{"mine": "stays"}, v.Annotations)
	}, shopPolicy(), deployment("web"))
}

func TestSkipAnnotation_PreventsVPA(t *testing.T) {
	skip := func(d *appsv1.Deployment) { d.Annotations = map[string]string{fleet.SkipAnnotation: "true"} }
	strange := func(d *appsv1.Deployment) { d.Annotations = map[string]string{fleet.ModeAnnotation: "Fast"} }
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.NotContains(t, c.vpasByName(), "deployment-web")
		status := c.policy("shop").Status
		require.Equal(t, int32(1), status.Counts.Refused)
		require.Len(t, status.Errors, 1)
		require.Contains(t, status.Errors[0], `Deployment odd in namespace shop: `)
		require.Contains(t, status.Errors[0], `"Fast"`)
	}, shopPolicy(), deployment("web", skip), deployment("odd", strange))
}

func TestStatus_ReportsWhyNotReady(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*loadlinev1alpha1.SizingPolicy)
		others []runtime.Object
		reason string
		says   string
	}{
		"invalid": {change: func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Recipe = new("nonsense") }, reason: "Unusable", says: "spec.recipe"},
		"paused":  {change: func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Paused = new(true) }, reason: "Paused", says: "spec.paused"},
		"nothing": {change: func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Namespaces.Names = []string{"nowhere"} }, reason: "NothingSelected", says: "spec.namespaces"},
		"yields": {change: func(*loadlinev1alpha1.SizingPolicy) {}, reason: "AlwaysYields", says: "higher priority",
			others: []runtime.Object{shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) { p.Name, p.Spec.Priority = "strong", new(int32(500)) })}},
		"of one priority": {change: func(*loadlinev1alpha1.SizingPolicy) {}, reason: "AlwaysYields", says: "or with the same priority and a name that sorts first",
			others: []runtime.Object{shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) { p.Name = "earlier" })}},
	} {
		t.Run(name, func(t *testing.T) {
			runInCluster(t, func(c *cluster) {
				c.runOnce(0)
				ready := c.ready("shop")
				require.Equal(t, metav1.ConditionFalse, ready.Status)
				require.Equal(t, test.reason, ready.Reason)
				require.Contains(t, ready.Message, test.says)
				if name == "invalid" || name == "paused" {
					require.Empty(t, c.vpasByName())
				}
			}, append(test.others, shopPolicy(test.change), deployment("web"))...)
		})
	}
}

func TestStatus_WrittenAtMostOncePerMinute(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		c.vpas.ClearActions()
		for i := range 12 { // two minutes
			_, err := c.kube.AppsV1().Deployments("shop").Create(t.Context(), deployment("web"+strings.Repeat("x", i)), metav1.CreateOptions{})
			require.NoError(t, err)
			c.runOnce(interval)
		}
		written := 0
		for _, a := range c.vpas.Actions() {
			if a.Matches("patch", "sizingpolicies/status") {
				written++
			}
		}
		require.Equal(t, 2, written)
		c.runOnce(time.Minute)
		require.Equal(t, int32(12), c.policy("shop").Status.Counts.Selected)
	}, shopPolicy())
}

func TestRecommenderName_SelectsResponsible(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.Empty(t, c.vpasByName())
		require.Empty(t, c.policy("shop").Status.Conditions)
		c.keeper.Name = "other"
		c.runOnce(time.Minute)
		v := c.vpasByName()["deployment-web"]
		require.Equal(t, "other", v.Spec.Recommenders[0].Name)
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.Recommender = nil })
		c.runOnce(time.Minute)
		c.keeper.Name = "default"
		c.runOnce(time.Minute)
		v = c.vpasByName()["deployment-web"]
		require.Empty(t, v.Spec.Recommenders, "it is handed over with its history")
		require.NotContains(t, v.Annotations, fleet.UnselectedAnnotation)
	}, shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Recommender = new("other") }), deployment("web"))
}
