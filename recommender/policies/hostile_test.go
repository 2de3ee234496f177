package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

func deployments(namespace string, n int) (all []runtime.Object) {
	for i := range n {
		all = append(all, deployment(fmt.Sprintf("web%03d", i), func(d *appsv1.Deployment) { d.Namespace = namespace }))
	}
	return all
}

// reactToVPAs counts VPA requests of a verb and fails them with the result of answer.
func (c *cluster) reactToVPAs(verb string, answer func(a clienttesting.Action) error) *int {
	n := new(int)
	c.vpas.PrependReactor(verb, "verticalpodautoscalers", func(a clienttesting.Action) (bool, runtime.Object, error) {
		*n++
		err := answer(a)
		return err != nil, nil, err
	})
	return n
}

func forbiddenError(policy string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "verticalpodautoscalers"}, "", errors.New(policy))
}

func (c *cluster) runFor(span time.Duration) {
	for range span / interval {
		c.runOnce(interval)
	}
}

func TestRunOnce_StopsIfPolicyChanges(t *testing.T) {
	for name, change := range map[string]func(c *cluster){
		"paused": func(c *cluster) {
			paused := c.policy("shop")
			paused.Spec.Paused = new(true)
			_, err := c.vpas.LoadlineV1alpha1().SizingPolicies().Update(c.t.Context(), paused, metav1.UpdateOptions{})
			require.NoError(c.t, err)
		},
		"deleted": func(c *cluster) {
			require.NoError(c.t, c.vpas.LoadlineV1alpha1().SizingPolicies().Delete(c.t.Context(), "shop", metav1.DeleteOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			runInCluster(t, func(c *cluster) {
				made := 0
				go func() {
					time.Sleep(500 * time.Millisecond) // the first twenty are created at once
					made = len(c.vpasByName())
					change(c)
				}()
				c.runOnce(0)
				require.Positive(t, made)
				require.LessOrEqual(t, len(c.vpasByName()), made+1)
			}, append(deployments("shop", 60), shopPolicy())...)
		})
	}
}

func TestRunOnce_RefusedChangesBlockOneNamespace(t *testing.T) {
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Namespaces.Names = []string{"aaa", "shop"} })
	runInCluster(t, func(c *cluster) {
		c.runFor(time.Minute)
		require.Len(t, c.vpasByName(), 250)
		asked := c.reactToVPAs("patch", func(a clienttesting.Action) error {
			if a.GetNamespace() == "aaa" {
				return forbiddenError("no changes")
			}
			return nil
		})
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.VPAMetadata = &loadlinev1alpha1.VPAMetadata{Labels: map[string]string{"owner": "b"}}
		})
		_, err := c.kube.AppsV1().Deployments("shop").Create(t.Context(), deployment("late"), metav1.CreateOptions{})
		require.NoError(t, err)
		c.runFor(10 * time.Minute)
		require.Contains(t, c.vpasByName(), "deployment-late")
		require.Equal(t, 4, *asked, "after a minute, two and four more")
		require.Contains(t, c.policy("shop").Status.Errors, "VPAs cannot be written in namespace aaa: "+forbiddenError("no changes").Error())
	}, append(deployments("aaa", 250), policy)...)
}

func TestStatus_BoundedForLargePolicies(t *testing.T) {
	const namespaces, kinds = 1000, 32
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.Namespaces.Names = []string{"*"}
		for i := range kinds - 1 {
			p.Spec.Workloads = append(p.Spec.Workloads, loadlinev1alpha1.WorkloadSelection{APIVersion: "apps/v1", Kind: "StatefulSet", Name: fmt.Sprint("db", i)})
		}
	})
	objects := []runtime.Object{policy}
	for i := range namespaces {
		objects = append(objects, deployment("web", func(d *appsv1.Deployment) { d.Namespace = fmt.Sprintf("ns%04d", i) }))
	}
	runInCluster(t, func(c *cluster) {
		c.reactToVPAs("create", func(a clienttesting.Action) error {
			if a.GetNamespace() < "ns0500" {
				return forbiddenError("no VPAs here")
			}
			return nil
		})
		wrote := c.runAndRecordWrites(12, interval)
		require.Equal(t, []string{"create verticalpodautoscalers", "patch sizingpolicies/status status"}, wrote)
		status := c.policy("shop").Status
		require.EqualValues(t, namespaces, status.Counts.Selected)
		require.Positive(t, status.Counts.Refused)
		require.NotEmpty(t, c.vpasByName())
		require.Len(t, status.Workloads, 100)
		require.Len(t, status.Errors, 10)
		require.Contains(t, status.Errors[0], "VPAs cannot be written in namespace ns0000: ")
		text, err := json.Marshal(status)
		require.NoError(t, err)
		require.Less(t, len(text), 64<<10)
	}, objects...)
}

// A VPA with a stuck finalizer is not deleted again.
func TestRunOnce_SkipsTerminatingVPAs(t *testing.T) {
	objects := append(deployments("aaa", 250), shopPolicy(), deployment("web"))
	gone := metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	for i := range 250 {
		v := newUserVPA(fmt.Sprintf("deployment-web%03d", i), fmt.Sprintf("web%03d", i))
		v.Namespace, v.Labels, v.Annotations = "aaa", map[string]string{fleet.PolicyLabel: "x"}, map[string]string{fleet.UnselectedAnnotation: "1999-01-01T00:00:00Z"}
		v.Finalizers, v.DeletionTimestamp = []string{"example.com/never"}, &gone
		objects = append(objects, v)
	}
	runInCluster(t, func(c *cluster) {
		deleted := c.reactToVPAs("delete", func(clienttesting.Action) error { return nil })
		c.runFor(2 * time.Hour)
		require.Contains(t, c.vpasByName(), "deployment-web")
		require.Zero(t, *deleted)
	}, objects...)
}

func TestRunOnce_ContinuesAfterRefusedVPA(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		c.reactToVPAs("create", func(a clienttesting.Action) error {
			if v, ok := a.(clienttesting.CreateAction).GetObject().(*vpav1.VerticalPodAutoscaler); ok && v.Name == "deployment-aaa" {
				return forbiddenError("no owner")
			}
			return nil
		})
		c.runFor(3 * time.Minute)
		require.Contains(t, c.vpasByName(), "deployment-web")
		require.NotContains(t, c.vpasByName(), "deployment-aaa")
	}, shopPolicy(), deployment("aaa"), deployment("web"))
}

// An unreachable API server must not count as a refusal by the namespace.
func TestRunOnce_CreatesVPAsAfterOutage(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		away := errors.New("connection refused")
		asked := c.reactToVPAs("create", func(clienttesting.Action) error { return away })
		c.runFor(90 * time.Minute)
		require.Equal(t, 90*6, *asked, "once a pass")
		require.Empty(t, c.policy("shop").Status.Errors)
		away = nil
		c.runOnce(interval)
		require.Len(t, c.vpasByName(), 2)
	}, shopPolicy(), deployment("web"), deployment("api"))
}

func TestRunOnce_WritesEachChangeOnce(t *testing.T) {
	off := vpav1.ContainerScalingModeOff
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", Mode: &off}}}
	})
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.NotNil(t, c.vpasByName()["deployment-web"].Spec.ResourcePolicy)
		patched := c.reactToVPAs("patch", func(clienttesting.Action) error { return nil })
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.ResourcePolicy = &vpav1.PodResourcePolicy{} })
		c.runFor(time.Minute)
		require.Equal(t, 1, *patched)
		require.Nil(t, c.vpasByName()["deployment-web"].Spec.ResourcePolicy)
	}, policy, deployment("web"))
}

func TestPausedPolicy_KeepsGeneratedVPA(t *testing.T) {
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.Paused = new(true) })
		_, err := c.vpas.AutoscalingV1().VerticalPodAutoscalers("shop").Create(t.Context(), newUserVPA("mine", "web"), metav1.CreateOptions{})
		require.NoError(t, err)
		c.runFor(time.Minute)
		c.runOnce(48 * time.Hour)
		require.Contains(t, c.vpasByName(), "deployment-web")
	}, shopPolicy(), deployment("web"))
}

// A user may remove the policy label to keep the VPA before the cache sees it.
func TestDeletion_RequiresUIDAndResourceVersion(t *testing.T) {
	v := newUserVPA("deployment-web", "web")
	v.Labels, v.Annotations = map[string]string{fleet.PolicyLabel: "shop"}, map[string]string{fleet.UnselectedAnnotation: "1999-01-01T00:00:00Z"}
	v.UID, v.ResourceVersion = "u", "7"
	runInCluster(t, func(c *cluster) {
		var demands *metav1.Preconditions
		c.reactToVPAs("delete", func(a clienttesting.Action) error {
			demands = a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
			return nil
		})
		c.runOnce(0)
		c.runOnce(minReadableTime)
		require.NotNil(t, demands)
		require.Equal(t, "u", string(*demands.UID))
		require.Equal(t, "7", *demands.ResourceVersion)
	}, v, deployment("web"))
}

// An invalid recipe must not change the revision, even if the workload opted out.
func TestFollow_IgnoresInvalidPolicyRecipe(t *testing.T) {
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Recipe = new("nonsense") })
	out := deployment("web", func(d *appsv1.Deployment) { d.Annotations = map[string]string{fleet.SkipAnnotation: "true"} })
	v := newUserVPA("mine", "web")
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, policy, out, v)
		c.start()
		book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
		require.NoError(t, err)
		m := model.NewModel(model.Config{Store: usage.NewStore(usage.DefaultConfig())})
		m.SyncVPAs([]model.Observed{{Selector: labels.Everything(), Object: v}}, time.Now())
		k := &recommend.SketchKeeper{Book: book, Model: m}
		follow := func() { Follow(c.keeper.Policies, m); k.Follow(klog.Background(), time.Now()) }
		follow()
		revision := m.VPAs()[0].Revision()
		follow()
		require.Equal(t, revision, m.VPAs()[0].Revision())
		require.Equal(t, recipe.FromFlag, m.VPAs()[0].Recipe.Source)
	})
}

func TestFollow_RestrictsRecipeOfUserVPAs(t *testing.T) {
	for _, tc := range []struct {
		name     string
		userVPAs loadlinev1alpha1.SharingUserVPAs
		want     string
	}{
		{name: "restricted", userVPAs: loadlinev1alpha1.SharingUserVPAsRestrict, want: "cruisekube"},
		{name: "overrides", userVPAs: loadlinev1alpha1.SharingUserVPAsOverride, want: "attune"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
				p.Spec.Recipe = new("cruisekube")
				p.Spec.Sharing = &loadlinev1alpha1.Sharing{Mode: new(loadlinev1alpha1.SharingOn), UserVPAs: new(tc.userVPAs)}
			})
			v := newUserVPA("mine", "web")
			v.Annotations = map[string]string{recipe.Annotation: "attune"}
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, policy, deployment("web"), v)
				c.start()
				book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
				require.NoError(t, err)
				m := model.NewModel(model.Config{Store: usage.NewStore(usage.DefaultConfig())})
				m.SyncVPAs([]model.Observed{{Selector: labels.Everything(), Object: v}}, time.Now())
				Follow(c.keeper.Policies, m)
				(&recommend.SketchKeeper{Book: book, Model: m}).Follow(klog.Background(), time.Now())
				require.Equal(t, tc.want, m.VPAs()[0].Recipe.Name)
			})
		})
	}
}
