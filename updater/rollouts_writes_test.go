package updater

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/testkit"
)

func (r *rolling) actions() []ktesting.Action {
	return append(r.kube.Actions(), r.vpa.Actions()...)
}

// wrote returns the writes of the updater during the call. The test itself must write nothing
// meanwhile. Events may arrive at any time.
func (r *rolling) wrote(does func()) []string {
	r.t.Helper()
	r.kube.ClearActions()
	r.vpa.ClearActions()
	does()
	return testkit.Writes(r.actions()...)
}

// managed returns the objects that users may keep in a repository: all except pods, records and
// events.
func (r *rolling) managed() (objects []runtime.Object) {
	r.t.Helper()
	add := func(object runtime.Object, err error) {
		require.NoError(r.t, err)
		objects = append(objects, object.DeepCopyObject())
	}
	all := metav1.ListOptions{}
	add(r.kube.AppsV1().Deployments("").List(r.t.Context(), all))
	add(r.kube.AppsV1().ReplicaSets("").List(r.t.Context(), all))
	add(r.kube.AutoscalingV2().HorizontalPodAutoscalers("").List(r.t.Context(), all))
	add(r.kube.CoreV1().Nodes().List(r.t.Context(), all))
	add(r.vpa.AutoscalingV1().VerticalPodAutoscalers("").List(r.t.Context(), all))
	add(r.vpa.LoadlineV1alpha1().SizingPolicies().List(r.t.Context(), all))
	return objects
}

// A GitOps tool must find nothing to correct. The updater writes only its own annotations, the
// resources of running pods, its records, and events.
func TestRollout_WritesNothingManagedByGitOps(t *testing.T) {
	allowed := []string{
		"create events", "create pods (dry run)", "create pods/eviction", "create sizingrecords", "patch events count", "patch events lastTimestamp",
		"patch pods metadata.annotations.loadline.dev/original", "patch pods metadata.annotations.loadline.dev/resized-at",
		"patch pods metadata.annotations.vpaInPlaceUpdated",
		"patch pods/resize spec.containers.resources", "update sizingrecords",
	}
	proceed := loadlinev1alpha1.HPAProceed
	used := map[string]bool{}
	for name, c := range map[string]struct {
		policy  *loadlinev1alpha1.SizingPolicy
		happens func(r *rolling, do func(func()))
	}{
		"promoted": {canaryOf(50, true), func(r *rolling, do func(func())) {
			do(func() { r.at(0); r.judge(5 * time.Minute); r.at(6 * time.Minute) })
			r.pending("web-1-2", corev1.PodReasonInfeasible)
			do(func() { r.judge(7 * time.Minute); r.at(8 * time.Minute) })
		}},
		"taken back": {autoPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.HPA = &proceed }), func(r *rolling, do func(func())) {
			do(func() { r.at(0) })
			r.restarted("web-1-0", 2)
			do(func() { r.judge(time.Minute); r.at(2 * time.Minute) })
			r.change("web-1-1", killed)
			r.recommend("50m", "200Mi")
			do(func() {
				r.loop.RunOOM(t.Context(), noon.Add(3*time.Minute), []cache.ObjectName{cache.NewObjectName("shop", "deployment-web")})
			})
			require.Equal(t, "100m 200Mi", r.requests("web-1-1"))
		}},
		"evicted": {autoPolicy(inPlaceOrRecreate), func(r *rolling, do func(func())) {
			r.refuse("patch", "pods", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1-0", nil))
			do(func() { r.at(0) })
			require.NotEmpty(t, r.evictions())
		}},
		"a person writes a VPA": {autoPolicy(), func(r *rolling, do func(func())) {
			do(func() { r.at(0) })
			r.createVPA(loweringVPA(vpav1.UpdateModeInPlaceOrRecreate))
			do(func() { r.judge(5 * time.Minute); r.at(6 * time.Minute) })
		}},
		"deleted": {autoPolicy(), func(r *rolling, do func(func())) {
			do(func() { r.at(0) })
			r.deletePolicy()
			do(func() { r.at(time.Minute); r.judge(25 * time.Hour) })
		}},
	} {
		r := newRolling(t, 4, c.policy, hpa())
		r.writesEvents = true
		r.restart()
		c.happens(r, func(does func()) {
			before := r.managed()
			wrote := r.wrote(does)
			require.Equal(t, before, r.managed(), name)
			require.Subset(t, allowed, wrote, name)
			for _, w := range wrote {
				used[w] = true
			}
		})
	}
	for _, w := range []string{"create pods (dry run)", "create pods/eviction", "create sizingrecords", "update sizingrecords", "patch pods/resize spec.containers.resources"} {
		require.Contains(t, used, w)
	}
}
