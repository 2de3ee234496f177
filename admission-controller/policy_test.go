package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/admission-controller/server"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

const (
	canary = loadlinev1alpha1.RolloutModeCanary
	auto   = loadlinev1alpha1.RolloutModeAuto
	full   = loadlinev1alpha1.RolloutPhaseFullRollout
)

func recordOf(policy *loadlinev1alpha1.SizingPolicy, changes ...func(*loadlinev1alpha1.SizingRecord)) *loadlinev1alpha1.SizingRecord {
	r := &loadlinev1alpha1.SizingRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: testkit.Namespace, Name: "deployment-web", OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "web-uid"}}},
		Status:     loadlinev1alpha1.SizingRecordStatus{Mode: *policy.Spec.Rollout.Mode, PolicyHash: convert.RolloutSettings(policy).Hash},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func inPhase(phase loadlinev1alpha1.RolloutPhase) func(*loadlinev1alpha1.SizingRecord) {
	return func(r *loadlinev1alpha1.SizingRecord) { r.Status.Phase = phase }
}

// reverted records that a CPU request of the container did harm an hour ago, and optionally a
// proven one.
func reverted(bad, well string) func(*loadlinev1alpha1.SizingRecord) {
	return func(r *loadlinev1alpha1.SizingRecord) {
		r.Status.Reverted = []loadlinev1alpha1.RevertedSizes{{
			ContainerSizes: loadlinev1alpha1.ContainerSizes{Name: "c", Requests: loadlinev1alpha1.Sizes(testkit.List("cpu=" + bad))},
			Time:           metav1.NewTime(time.Now().Add(-time.Hour)),
		}}
		if well != "" {
			r.Status.Kept = []loadlinev1alpha1.ContainerSizes{{Name: "c", Requests: loadlinev1alpha1.Sizes(testkit.List("cpu=" + well))}}
		}
	}
}

// generatedByRecommender returns the generated VPA as the recommender creates it.
func generatedByRecommender(changes ...func(*vpav1.VerticalPodAutoscaler)) *vpav1.VerticalPodAutoscaler {
	vpa := generatedVPA(vpav1.UpdateModeOff)
	vpa.Spec.StartupBoost = nil
	for _, change := range changes {
		change(vpa)
	}
	return vpa
}

// cpuOf returns the CPU request in the patch of a new pod, or "" if the pod is unchanged.
func cpuOf(answer server.Answer) string {
	for _, step := range answer.Patch {
		if step.Path == "/spec/containers/0/resources/requests/cpu" {
			return step.Value.(string)
		}
	}
	return ""
}

func TestGeneratedVPA_SizesNewPodsFromFullRollout(t *testing.T) {
	policy, sized := sizingPolicy(canary), sizingPolicy(canary, initially(loadlinev1alpha1.InitialSizingTarget))
	another := sizingPolicy(canary, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("crane") })
	namesake := func(r *loadlinev1alpha1.SizingRecord) { r.OwnerReferences[0].UID = "another" }
	for _, tc := range []struct {
		name   string
		policy *loadlinev1alpha1.SizingPolicy
		record *loadlinev1alpha1.SizingRecord
		want   string // CPU request of a new pod
	}{
		{name: "canary", policy: policy, record: recordOf(policy, inPhase(loadlinev1alpha1.RolloutPhaseCanary)), want: ""},
		{name: "full rollout", policy: policy, record: recordOf(policy, inPhase(full)), want: "2"},
		{name: "full rollout of another recipe", policy: policy, record: recordOf(another, inPhase(full)), want: ""},
		{name: "full rollout of a namesake", policy: policy, record: recordOf(policy, inPhase(full), namesake), want: ""},
		{name: "halted", policy: policy, record: recordOf(policy, inPhase(loadlinev1alpha1.RolloutPhaseHalted)), want: ""},
		{name: "canary with initial sizing", policy: sized, record: recordOf(sized, inPhase(loadlinev1alpha1.RolloutPhaseCanary)),
			want: "2"},
		{name: "halted with initial sizing", policy: sized, record: recordOf(sized, inPhase(loadlinev1alpha1.RolloutPhaseHalted)),
			want: ""},
		{name: "halted with another recipe", policy: sized, record: recordOf(another, inPhase(loadlinev1alpha1.RolloutPhaseHalted)),
			want: "2"},
		{name: "full rollout without initial sizing", policy: sizingPolicy(canary, initially(loadlinev1alpha1.InitialSizingOff)),
			record: recordOf(policy, inPhase(full)), want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vpas := vpafake.NewSimpleClientset(generatedByRecommender(), tc.policy, tc.record)
			answer, _ := created(t, webhookOf(t, clusterWithWeb(nil), vpas))
			require.Equal(t, tc.want, cpuOf(answer))
		})
	}
	oneShot, record := map[string]string{fleet.ModeAnnotation: "OneShot"}, recordOf(policy, inPhase(full))
	answer, _ := created(t, webhookOf(t, clusterWithWeb(oneShot), vpafake.NewSimpleClientset(generatedByRecommender(), policy, record)))
	require.Empty(t, cpuOf(answer), "an annotation reduces the mode")
}

// A user VPA takes precedence even if its mode is Off.
func TestUserVPA_OverridesGeneratedVPA(t *testing.T) {
	for mode, want := range map[vpav1.UpdateMode]string{vpav1.UpdateModeOff: "", vpav1.UpdateModeInitial: "3", vpav1.UpdateModeRecreate: "3"} {
		person := testkit.VPA("a", testkit.Mode(mode), testkit.Recommend("c", "cpu=3"))
		vpas := vpafake.NewSimpleClientset(generatedByRecommender(), person, sizingPolicy(auto))
		answer, _ := created(t, webhookOf(t, clusterWithWeb(nil), vpas))
		require.Equal(t, want, cpuOf(answer), mode)
	}
}

// Without records, past harm and the phase of a canary are unknown.
func TestGeneratedVPA_RequiresRecords(t *testing.T) {
	resource := schema.GroupResource{Group: loadlinev1alpha1.GroupName, Resource: "sizingrecords"}
	unreadable := func(r *loadlinev1alpha1.SizingRecord) {
		r.Annotations = map[string]string{vpav1.UnreadableAnnotation: "status: too long"}
	}
	for _, tc := range []struct {
		name    string
		problem error
		record  *loadlinev1alpha1.SizingRecord
	}{
		{name: "definition missing", problem: apierrors.NewNotFound(resource, ""), record: recordOf(sizingPolicy(auto))},
		{name: "forbidden", problem: apierrors.NewForbidden(resource, "", nil), record: recordOf(sizingPolicy(auto))},
		{name: "unreadable record", record: recordOf(sizingPolicy(auto), unreadable)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			user := testkit.VPA("v", testkit.Recommend("c", "cpu=2"))
			for _, vpa := range []*vpav1.VerticalPodAutoscaler{generatedByRecommender(), user} {
				synctest.Test(t, func(t *testing.T) { // the webhook waits some seconds for a permission
					vpas := vpafake.NewSimpleClientset(vpa, sizingPolicy(auto), tc.record)
					if tc.problem != nil {
						vpas.PrependReactor("list", "sizingrecords", func(ktesting.Action) (bool, runtime.Object, error) {
							return true, nil, tc.problem
						})
					}
					ctx, stop := context.WithCancel(t.Context())
					filled, err := fillCaches(ctx, Default(), &client.Clients{Kube: clusterWithWeb(nil), VPA: vpas})
					require.NoError(t, err)
					answer, said := created(t, filled.handlers[0])
					if convert.IsGenerated(vpa) {
						require.Empty(t, answer.Patch)
						require.Contains(t, said, `reason="NoRecord"`)
					} else {
						require.Equal(t, "2", cpuOf(answer))
					}
					stop()
					synctest.Wait()
				})
			}
		})
	}
}

func TestReverted_FloorsRequestsOfNewPods(t *testing.T) {
	policy := sizingPolicy(auto)
	other := sizingPolicy(auto, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("crane") })
	memoryWell := func(r *loadlinev1alpha1.SizingRecord) {
		r.Status.Kept = []loadlinev1alpha1.ContainerSizes{{Name: "c", Requests: loadlinev1alpha1.Sizes(testkit.List("memory=2Gi"))}}
	}
	long := func(r *loadlinev1alpha1.SizingRecord) {
		r.Status.Reverted[0].Time = metav1.NewTime(time.Now().Add(-8 * 24 * time.Hour))
	}
	for _, tc := range []struct {
		name        string
		recommended string
		record      *loadlinev1alpha1.SizingRecord
		want        string // CPU request of a pod created with 100m
		warned      bool
	}{
		{name: "kept sizes", recommended: "50m", record: recordOf(policy, reverted("50m", "300m")), want: "300m", warned: true},
		{name: "slightly higher recommendation", recommended: "55m", record: recordOf(policy, reverted("50m", "300m")), want: "300m",
			warned: true},
		{name: "higher recommendation", recommended: "60m", record: recordOf(policy, reverted("50m", "300m")), want: "60m"},
		{name: "sizes of the template", recommended: "50m", record: recordOf(policy, reverted("50m", "")), want: "100m", warned: true},
		{name: "sizes of the template for one resource", recommended: "50m", record: recordOf(policy, reverted("50m", ""), memoryWell),
			want: "100m", warned: true},
		{name: "no revert", recommended: "50m", record: recordOf(policy), want: "50m"},
		{name: "revert of another recipe", recommended: "50m", record: recordOf(other, reverted("50m", "300m")), want: "50m"},
		{name: "old revert", recommended: "50m", record: recordOf(policy, reverted("50m", "300m"), long), want: "50m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, vpa := range []*vpav1.VerticalPodAutoscaler{generatedByRecommender(testkit.Recommend("d", "cpu=1")), testkit.VPA("v")} {
				testkit.Recommend("c", "cpu="+tc.recommended+" memory=1Gi")(vpa)
				if convert.IsGenerated(vpa) {
					vpa.Status.Recommendation.ContainerRecommendations = vpa.Status.Recommendation.ContainerRecommendations[1:]
				}
				answer, said := created(t, webhookOf(t, clusterWithWeb(nil), vpafake.NewSimpleClientset(vpa, policy, tc.record)))
				require.Equal(t, tc.want, cpuOf(answer))
				require.Contains(t, answer.Patch, client.PatchAdd("/spec/containers/0/resources/requests/memory", "1Gi"))
				require.Equal(t, tc.warned, len(answer.Warnings) > 0)
				if tc.warned {
					require.Equal(t, []string{"VerticalPodAutoscaler " + vpa.Name + ": container c: cpu stays at " + tc.want +
						" although " + tc.recommended + " is recommended, because a lower value was reverted after harm"}, answer.Warnings)
					require.Contains(t, said, "because a lower value was reverted after harm")
				}
			}
		})
	}
}

// maxAllowed comes from the user or the policy, and the updater obeys it as well.
func TestReverted_StaysBelowMaxAllowed(t *testing.T) {
	policy := sizingPolicy(auto)
	vpa := generatedByRecommender(testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "*", MaxAllowed: testkit.List("cpu=200m")}))
	vpa.Status.Recommendation.ContainerRecommendations[0].Target = testkit.List("cpu=50m")
	answer, _ := created(t, webhookOf(t, clusterWithWeb(nil), vpafake.NewSimpleClientset(vpa, policy, recordOf(policy, reverted("50m", "300m")))))
	require.Equal(t, "200m", cpuOf(answer))
}

func TestGeneratedVPA_BoostsOnlyByResourcePolicy(t *testing.T) {
	boost := &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3))}}
	asks := testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "c", StartupBoost: boost})
	for want, vpa := range map[string]*vpav1.VerticalPodAutoscaler{"2": generatedVPA(vpav1.UpdateModeOff), "6": generatedByRecommender(asks)} {
		answer, _ := created(t, webhookOf(t, clusterWithWeb(nil), vpafake.NewSimpleClientset(vpa, sizingPolicy(auto))))
		require.Equal(t, want, cpuOf(answer))
		answer, _ = created(t, webhookOf(t, clusterWithWeb(nil), vpafake.NewSimpleClientset(vpa, sizingPolicy(canary))))
		require.Empty(t, answer.Patch)
	}
}

// Without an active policy, pods of generated VPAs are not read, and --webhook-failure-policy-fail
// does not refuse them.
func TestServedNamespaces_FollowActivePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vpas := vpafake.NewSimpleClientset(generatedByRecommender(), testkit.VPA("off", testkit.Mode(vpav1.UpdateModeOff), func(v *vpav1.VerticalPodAutoscaler) { v.Namespace = "other" }))
		ctx, stop := context.WithCancel(t.Context())
		defer func() { stop(); synctest.Wait() }()
		filled, err := fillCaches(ctx, Default(), &client.Clients{Kube: clusterWithWeb(nil), VPA: vpas})
		require.NoError(t, err)
		noPod := func() bool { // a namespace that is not served accepts an invalid pod
			synctest.Wait()
			request := podRequest(t, 7)
			request.Operation = admissionv1.Create
			return filled.handlers[0].Answer(t.Context(), request).Err != nil
		}
		require.Empty(t, filled.served.Namespaces())
		require.False(t, noPod())
		policies := vpas.LoadlineV1alpha1().SizingPolicies()
		_, err = policies.Create(t.Context(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend), metav1.CreateOptions{})
		require.NoError(t, err)
		require.False(t, noPod())
		_, err = policies.Update(t.Context(), sizingPolicy(auto), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.True(t, noPod())
		require.Equal(t, []string{testkit.Namespace}, filled.served.Namespaces())
		_, err = policies.Update(t.Context(), sizingPolicy(auto, pausedPolicy), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.False(t, noPod())
		require.Empty(t, filled.served.Namespaces())
	})
}

// New pods keep resources that an HPA scales on, as running pods do.
func TestHPA_KeepsResourcesOfNewPods(t *testing.T) {
	proceed := loadlinev1alpha1.HPAProceed
	for want, policy := range map[string]*loadlinev1alpha1.SizingPolicy{
		"":  sizingPolicy(auto),
		"2": sizingPolicy(auto, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.HPA = &proceed }),
	} {
		kube := clusterWithWeb(nil)
		require.NoError(t, kube.Tracker().Add(&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: testkit.Namespace, Name: "web"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
				Metrics:        []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU}}},
			}}))
		answer, _ := created(t, webhookOf(t, kube, vpafake.NewSimpleClientset(generatedByRecommender(), policy)))
		require.Equal(t, want, cpuOf(answer))
	}
}
