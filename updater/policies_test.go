package updater

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/updater/actuate"
)

// sizingPolicy returns a policy that selects the Deployments of namespace "shop".
func sizingPolicy(mode loadlinev1alpha1.RolloutMode, changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"shop"}},
		Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
		Rollout:    &loadlinev1alpha1.Rollout{Mode: &mode},
	}}
	if mode == loadlinev1alpha1.RolloutModeCanary {
		p.Spec.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(10))}
	}
	for _, change := range changes {
		change(&p.Spec)
	}
	return p
}

func pausedPolicy(s *loadlinev1alpha1.SizingPolicySpec)   { s.Paused = new(true) }
func unusablePolicy(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("no such recipe") }

func generatedVPA() *vpav1.VerticalPodAutoscaler {
	vpa := autoscaler(vpav1.UpdateModeOff)
	vpa.Name, vpa.Labels = fleet.GeneratedVPAName("Deployment", "apps", "web"), map[string]string{fleet.PolicyLabel: "fleet"}
	return vpa
}

func annotated(objects []runtime.Object, key, value string) []runtime.Object {
	for _, o := range objects {
		if d, ok := o.(*appsv1.Deployment); ok {
			d.Annotations = map[string]string{key: value}
		}
	}
	return objects
}

// awaitSkipReason waits until the informer caches give running pods of a VPA the skip reason.
func (w *world) awaitSkipReason(vpa *vpav1.VerticalPodAutoscaler, why reason.Reason) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.caches.policies.For(vpa).Reason == why }, time.Minute, time.Millisecond, string(why))
}

func (w *world) dryRunOutput() string {
	var out strings.Builder
	w.loop.setExecutor(&actuate.DryRun{Out: &out})
	w.runOnce(noon)
	return out.String()
}

func TestResize_PolicyMaxAllowedBoundsUserVPAs(t *testing.T) {
	for _, tc := range []struct {
		name string
		of   loadlinev1alpha1.SharingUserVPAs
		want string
	}{
		{name: "restricted", of: loadlinev1alpha1.SharingUserVPAsRestrict, want: "cpu 100m -> 150m"},
		{name: "not restricted", of: loadlinev1alpha1.SharingUserVPAsOverride, want: "cpu 100m -> 300m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vpa := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
			vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MinAllowed: list("300m", "200Mi")}}}
			p := sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.Sharing = &loadlinev1alpha1.Sharing{Mode: new(loadlinev1alpha1.SharingOn), UserVPAs: new(tc.of)}
				s.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MaxAllowed: list("150m", "4Gi")}}}
			})
			w := newWorld(t, Default(), append(deployment(2, nil), vpa, p, healthy("n1"))...)
			require.Contains(t, w.dryRunOutput(), tc.want)
		})
	}
}

func TestPolicy_SkipReasonByMode(t *testing.T) {
	recommend := loadlinev1alpha1.RolloutModeRecommend
	for _, tc := range []struct {
		name       string
		policy     *loadlinev1alpha1.SizingPolicy
		annotation [2]string
		generated  string // skip reason with a generated VPA, empty: as with mode Off
		user       string // skip reason with a user VPA, empty: the pods are changed
	}{
		{name: "no policy", generated: "PolicyUnknown"},
		{name: "policy of another namespace",
			policy:    sizingPolicy(recommend, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names[0] = "pay" }),
			generated: "PolicyUnknown"},
		{name: "Inherit", policy: sizingPolicy(loadlinev1alpha1.RolloutModeInherit)},
		{name: "Observe", policy: sizingPolicy(loadlinev1alpha1.RolloutModeObserve), generated: "Observing", user: "Observing"},
		{name: "Recommend", policy: sizingPolicy(recommend), generated: "RecommendOnly", user: "RecommendOnly"},
		{name: "paused", policy: sizingPolicy(loadlinev1alpha1.RolloutModeInherit, pausedPolicy), generated: "PolicyPaused",
			user: "PolicyPaused"},
		{name: "not usable", policy: sizingPolicy(loadlinev1alpha1.RolloutModeInherit, unusablePolicy), generated: "PolicyUnknown",
			user: "PolicyUnknown"},
		{name: "opted out", policy: sizingPolicy(loadlinev1alpha1.RolloutModeInherit), annotation: [2]string{fleet.SkipAnnotation, "true"},
			generated: "OptedOut", user: "OptedOut"},
		{name: "mode annotation", policy: sizingPolicy(loadlinev1alpha1.RolloutModeInherit),
			annotation: [2]string{fleet.ModeAnnotation, "Observe"}, generated: "Observing", user: "Observing"},
		{name: "opted out without a policy", annotation: [2]string{fleet.SkipAnnotation, "true"}, generated: "PolicyUnknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var common []runtime.Object
			if tc.policy != nil {
				common = append(common, tc.policy)
			}
			deployed := func() []runtime.Object {
				if tc.annotation[0] == "" {
					return append(deployment(2, nil), common...)
				}
				return append(annotated(deployment(2, nil), tc.annotation[0], tc.annotation[1]), common...)
			}
			w := newWorld(t, Default(), append(deployed(), generatedVPA())...)
			said := w.dryRunOutput()
			require.NotContains(t, said, "would resize")
			skips := strings.Contains(said, "would skip pod shop/web-1-0 (VPA deployment-web): "+tc.generated)
			require.Equal(t, tc.generated != "", skips, said)
			if tc.generated != "" {
				require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", tc.generated))
			}

			w = newWorld(t, Default(), append(deployed(), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
			said = w.dryRunOutput()
			require.Equal(t, tc.user == "", strings.Contains(said, "would resize pod shop/web-1-0 (VPA web-vpa"), said)
			if tc.user != "" {
				require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", tc.user))
				require.Contains(t, said, "would skip pod shop/web-1-0 (VPA web-vpa): "+tc.user)
			}
		})
	}
}

// The pods of a CronJob end before a change can be judged. A policy sizes the next ones.
func TestPolicy_SkipsCronJobPods(t *testing.T) {
	labels := map[string]string{"app": "web"}
	cronJob := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}}
	cronJob.Spec.JobTemplate.Spec.Template.Labels = labels
	controlledBy := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: kind, Name: name, Controller: new(true)}}
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: controlledBy("CronJob", "web")}}
	pods := slices.DeleteFunc(deployment(2, func(p *corev1.Pod) { p.OwnerReferences = controlledBy("Job", "web-1") }), func(o runtime.Object) bool {
		_, is := o.(*corev1.Pod)
		return !is
	})
	made := generatedVPA()
	made.Name = fleet.GeneratedVPAName("CronJob", "batch", "web")
	made.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "batch/v1", Kind: "CronJob", Name: "web"}
	policy := sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Workloads = []loadlinev1alpha1.WorkloadSelection{{APIVersion: "batch/v1", Kind: "CronJob"}}
	})
	w := newWorld(t, Default(), append(pods, cronJob, job, made, policy)...)
	said := w.dryRunOutput()
	require.Contains(t, said, "would skip pod shop/web-1-0 (VPA cronjob-web): JobNotResized")
	require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", "JobNotResized"))
}

// The VPA itself does not change, so its cached state is reused.
func TestPolicy_ChangeAppliesInNextIteration(t *testing.T) {
	vpa := autoscaler(vpav1.UpdateModeRecreate)
	w := newWorld(t, Default(), append(deployment(8, nil), vpa)...)
	policies := w.vpa.LoadlineV1alpha1().SizingPolicies()
	evicted := func(minute int) int {
		before := len(w.evictions())
		w.runOnce(noon.Add(time.Duration(minute) * time.Minute))
		return len(w.evictions()) - before
	}
	why := func(why string) float64 { return w.value("loadline_updater_skipped_pods", "reason", why) }
	require.Positive(t, evicted(0))

	_, err := policies.Create(t.Context(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend), metav1.CreateOptions{})
	require.NoError(t, err)
	w.awaitSkipReason(vpa, reason.RecommendOnly)
	require.Zero(t, evicted(1))
	require.EqualValues(t, 8, why("RecommendOnly"))

	_, err = policies.Update(t.Context(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, pausedPolicy), metav1.UpdateOptions{})
	require.NoError(t, err)
	w.awaitSkipReason(vpa, reason.PolicyPaused)
	require.Zero(t, evicted(2))
	require.EqualValues(t, 8, why("PolicyPaused"))
	require.Zero(t, why("RecommendOnly"))

	require.NoError(t, policies.Delete(t.Context(), "fleet", metav1.DeleteOptions{}))
	w.awaitSkipReason(vpa, "")
	require.Positive(t, evicted(3))
	require.Zero(t, why("PolicyPaused"))
}

func TestPolicy_HoldTakesEffectDuringIteration(t *testing.T) {
	inherit := loadlinev1alpha1.RolloutModeInherit
	for why, hold := range map[reason.Reason]func(w *world) error{
		reason.PolicyPaused: func(w *world) error {
			_, err := w.vpa.LoadlineV1alpha1().SizingPolicies().Update(t.Context(), sizingPolicy(inherit, pausedPolicy), metav1.UpdateOptions{})
			return err
		},
		reason.OptedOut: func(w *world) error {
			web := annotated(deployment(4, nil), fleet.SkipAnnotation, "true")[0].(*appsv1.Deployment)
			_, err := w.kube.AppsV1().Deployments("shop").Update(t.Context(), web, metav1.UpdateOptions{})
			return err
		},
		reason.RecommendOnly: func(w *world) error {
			_, err := w.vpa.LoadlineV1alpha1().SizingPolicies().Update(t.Context(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend), metav1.UpdateOptions{})
			return err
		},
	} {
		vpa := autoscaler(vpav1.UpdateModeRecreate)
		w := newWorld(t, Default(), append(deployment(4, nil), vpa, sizingPolicy(inherit))...)
		w.loop.runner.Executor = stoppingExecutor{w.loop.runner.Executor, func() {
			require.NoError(t, hold(w))
			w.awaitSkipReason(vpa, why)
		}}
		w.runOnce(noon)
		require.Equal(t, []string{"web-1-0"}, w.evictions(), why)
		require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", string(why)))
	}
}

// An OOM kill is handled outside iterations and without the admission controller.
func TestOOMKill_PolicyHoldBlocksMemoryIncrease(t *testing.T) {
	vpa := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
	w := newWorld(t, Default(), append(deployment(1, killed), vpa, sizingPolicy(loadlinev1alpha1.RolloutModeRecommend))...)
	require.False(t, w.loop.HasOOMKilled(t.Context(), raisedVPAs, noon), "so the others are not looked at, either")
	w.loop.RunOOM(t.Context(), noon, raisedVPAs)
	require.Empty(t, w.writes())

	// A VPA that is not held triggers the update.
	free := autoscaler(vpav1.UpdateModeInPlaceOrRecreate)
	free.Name, free.Namespace = "free", "pay"
	elsewhere := deployment(1, killed)
	for _, o := range elsewhere {
		o.(metav1.Object).SetNamespace("pay")
		if pod, ok := o.(*corev1.Pod); ok {
			pod.UID = "elsewhere"
		}
	}
	w = newWorld(t, Default(), slices.Concat(deployment(1, killed), elsewhere, []runtime.Object{vpa, free, sizingPolicy(loadlinev1alpha1.RolloutModeRecommend)})...)
	w.loop.RunOOM(t.Context(), noon, append(slices.Clone(raisedVPAs), cache.NewObjectName("pay", "free")))
	require.NotEmpty(t, w.writes())
	require.Equal(t, "100Mi", w.pod("web-1-0").Spec.Containers[0].Resources.Requests.Memory().String())
}

// The SizingPolicy CRD may be missing, or the updater may lack permission to read it.
func TestPolicy_MissingCRDKeepsUserVPAsActive(t *testing.T) {
	t.Parallel() // a start waits some seconds for unreadable objects
	for _, tc := range []struct {
		name string
		vpa  *vpav1.VerticalPodAutoscaler
		want string
	}{
		{name: "a person's", vpa: autoscaler(vpav1.UpdateModeInPlaceOrRecreate), want: "would resize pod shop/web-1-0 (VPA web-vpa, OutOfBounds)"},
		{name: "a made one", vpa: generatedVPA(), want: "would skip pod shop/web-1-0 (VPA deployment-web): PolicyUnknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			vpas, kube := vpafake.NewSimpleClientset(tc.vpa), fake.NewClientset(deployment(2, nil)...)
			vpas.PrependReactor("list", "sizingpolicies", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: loadlinev1alpha1.GroupName, Resource: "sizingpolicies"}, "")
			})
			kube.PrependReactor("list", "namespaces", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", nil)
			})
			w := &world{t: t, kube: kube, vpa: vpas}
			w.start(Default())
			require.Contains(t, w.dryRunOutput(), tc.want)
		})
	}
}

// A generated VPA stays until the recommender removes it.
func TestUserVPA_PrecedesGeneratedVPA(t *testing.T) {
	for mode, want := range map[vpav1.UpdateMode]string{
		vpav1.UpdateModeRecreate: "would evict pod shop/web-1-0 (VPA web-vpa",
		vpav1.UpdateModeOff:      "",
		vpav1.UpdateModeInitial:  "",
	} {
		old := generatedVPA()
		old.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
		young := autoscaler(mode)
		young.CreationTimestamp = metav1.NewTime(noon)
		w := newWorld(t, Default(), append(deployment(2, nil), old, young, sizingPolicy(loadlinev1alpha1.RolloutModeInherit))...)
		said := w.dryRunOutput()
		if require.Contains(t, said, want, mode); want == "" {
			require.NotContains(t, said, "would ", mode)
		}
		require.NotContains(t, said, "deployment-web", mode)

		w = newWorld(t, Default(), append(deployment(2, nil), old, young)...)
		require.NotContains(t, w.dryRunOutput(), "deployment-web", "%s, and no policy", mode)
	}
}

// Generated VPAs have mode Off. Editing one must not grant permission to act.
func TestGeneratedVPA_EditedModeHasNoEffect(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy *loadlinev1alpha1.SizingPolicy
		reason string
	}{
		{name: "Inherit", policy: sizingPolicy(loadlinev1alpha1.RolloutModeInherit), reason: "ModeOff"},
		{name: "Recommend", policy: sizingPolicy(loadlinev1alpha1.RolloutModeRecommend), reason: "RecommendOnly"},
		{name: "paused", policy: sizingPolicy(loadlinev1alpha1.RolloutModeAuto, pausedPolicy), reason: "PolicyPaused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vpa := generatedVPA()
			vpa.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeRecreate)
			w := newWorld(t, Default(), append(deployment(2, nil), vpa, tc.policy)...)
			require.Contains(t, w.dryRunOutput(), "would skip pod shop/web-1-0 (VPA deployment-web): "+tc.reason)
			require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", tc.reason))
		})
	}
}

// Only an unusable policy needs attention. The other reasons are configured.
func TestPolicy_EventOnlyIfUnusable(t *testing.T) {
	for want, policy := range map[string]*loadlinev1alpha1.SizingPolicy{
		"Normal PolicyUnknown Skipped pods: 2, such as web-1-0": sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, unusablePolicy),
		"": sizingPolicy(loadlinev1alpha1.RolloutModeRecommend),
	} {
		w := newWorld(t, Default(), append(deployment(2, nil), generatedVPA(), policy)...)
		w.runOnce(noon)
		require.Empty(t, w.drainEvents())
		w.runOnce(noon.Add(10 * time.Minute))
		if want == "" {
			require.Empty(t, w.drainEvents())
			continue
		}
		told := w.drainEvents()
		require.Len(t, told, 1)
		require.Contains(t, told[0], want)
	}
}

// The mode of the VPA already explains the skip.
func TestPolicy_NoSkipReasonForUserVPAInModeOff(t *testing.T) {
	for _, mode := range []vpav1.UpdateMode{vpav1.UpdateModeOff, vpav1.UpdateModeInitial} {
		for _, change := range []func(*loadlinev1alpha1.SizingPolicySpec){pausedPolicy, unusablePolicy} {
			w := newWorld(t, Default(), append(deployment(2, nil), autoscaler(mode), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, change))...)
			require.NotContains(t, w.dryRunOutput(), "pod shop/web-1-0", mode)
		}
	}
}

func TestPolicy_RemovingRolloutStopsIteration(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*loadlinev1alpha1.SizingPolicySpec)
	}{
		{name: "mode Recommend", edit: func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend)
		}},
		{name: "no rollout", edit: func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 4, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, atOnce(0)))
			edited := false
			r.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				if a.GetSubresource() == "resize" && !edited {
					edited = true
					r.edit(tc.edit)
				}
				return false, nil, nil
			})
			require.Len(t, r.at(0), 1)
		})
	}
}
