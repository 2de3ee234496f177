package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"loadline.dev/loadline/admission-controller/server"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

func sizingPolicy(mode loadlinev1alpha1.RolloutMode, changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *loadlinev1alpha1.SizingPolicy {
	p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{testkit.Namespace}},
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

func initially(sizing loadlinev1alpha1.InitialSizing) func(*loadlinev1alpha1.SizingPolicySpec) {
	return func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.InitialSizing = &sizing }
}

// generatedVPA returns the generated VPA of the Deployment web, with edits of a user that have no
// effect.
func generatedVPA(mode vpav1.UpdateMode) *vpav1.VerticalPodAutoscaler {
	return testkit.VPA(fleet.GeneratedVPAName("Deployment", "apps", "web"), testkit.Mode(mode), testkit.Recommend("c", "cpu=2"), func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Labels = map[string]string{fleet.PolicyLabel: "fleet"}
		vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3))}}
	})
}

// webhookOf fills the caches from a cluster with the Deployment web and one of its ReplicaSets and
// returns the pod handler.
func webhookOf(t testing.TB, kube *fake.Clientset, vpas *vpafake.Clientset, changes ...func(*Config)) server.Handler {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	config := Default()
	config.Gates.CPUStartupBoost = true
	for _, change := range changes {
		change(config)
	}
	filled, err := fillCaches(ctx, config, &client.Clients{Kube: kube, VPA: vpas})
	require.NoError(t, err)
	t.Cleanup(stop)
	return filled.handlers[0]
}

// followingWebhookOf is webhookOf with the background loops of the program.
func followingWebhookOf(t testing.TB, kube *fake.Clientset, vpas *vpafake.Clientset) server.Handler {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	filled, err := fillCaches(ctx, Default(), &client.Clients{Kube: kube, VPA: vpas})
	require.NoError(t, err)
	var following sync.WaitGroup
	following.Go(func() { assert.NoError(t, filled.refresh(ctx)) })
	t.Cleanup(func() {
		stop()
		following.Wait()
	})
	return filled.handlers[0]
}

func clusterWithWeb(annotations map[string]string) *fake.Clientset {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: testkit.Namespace, Name: name}
	}
	web := &appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Selector: selector}}
	web.Annotations, web.UID = annotations, "web-uid"
	set := &appsv1.ReplicaSet{ObjectMeta: meta("web-1"), Spec: appsv1.ReplicaSetSpec{Selector: selector}}
	set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Controller: new(true)}}
	return fake.NewClientset(web, set, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testkit.Namespace}})
}

// created reviews a new pod of the Deployment web and returns the answer and the log.
func created(t *testing.T, pods server.Handler) (server.Answer, string) {
	t.Helper()
	var text bytes.Buffer
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text), textlogger.Verbosity(4)))
	answer := pods.Answer(klog.NewContext(t.Context(), log), podRequest(t, testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))))
	require.NoError(t, answer.Err)
	if answer.After != nil {
		answer.After()
	}
	return answer, text.String()
}

func TestPolicy_DeterminesSizingOfNewPods(t *testing.T) {
	const inherit, observe, recommend = loadlinev1alpha1.RolloutModeInherit, loadlinev1alpha1.RolloutModeObserve, loadlinev1alpha1.RolloutModeRecommend
	const oneShot, canary, auto = loadlinev1alpha1.RolloutModeOneShot, loadlinev1alpha1.RolloutModeCanary, loadlinev1alpha1.RolloutModeAuto
	off, sized := initially(loadlinev1alpha1.InitialSizingOff), initially(loadlinev1alpha1.InitialSizingTarget)
	for _, tc := range []struct {
		name       string
		policy     *loadlinev1alpha1.SizingPolicy
		annotation string
		generated  string // reason why pods of a generated VPA are not sized
		user       string // the same for a user VPA, empty if its pods are sized
	}{
		{name: "no policy", generated: "PolicyUnknown"},
		{name: "policy of another namespace",
			policy:    sizingPolicy(recommend, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names[0] = "pay" }),
			generated: "PolicyUnknown"},
		{name: "Inherit", policy: sizingPolicy(inherit), generated: "ModeOff"},
		{name: "Observe", policy: sizingPolicy(observe), generated: "Observing"},
		{name: "Recommend", policy: sizingPolicy(recommend), generated: "RecommendOnly"},
		{name: "OneShot", policy: sizingPolicy(oneShot), generated: "InitialSizingOff"},
		{name: "Canary", policy: sizingPolicy(canary), generated: "InitialSizingOff"},
		{name: "Auto", policy: sizingPolicy(auto)},
		{name: "OneShot with initial sizing", policy: sizingPolicy(oneShot, sized)},
		{name: "Canary with initial sizing", policy: sizingPolicy(canary, sized)},
		{name: "Auto without initial sizing", policy: sizingPolicy(auto, off), generated: "InitialSizingOff", user: "InitialSizingOff"},
		{name: "Auto, paused", policy: sizingPolicy(auto, pausedPolicy), generated: "PolicyPaused", user: "PolicyPaused"},
		{name: "Auto, not usable", policy: sizingPolicy(auto, unusablePolicy), generated: "PolicyUnknown", user: "PolicyUnknown"},
		{name: "Auto, opted out", policy: sizingPolicy(auto), annotation: "true", generated: "OptedOut", user: "OptedOut"},
		{name: "Observe with initial sizing", policy: sizingPolicy(observe, sized), generated: "Observing"},
		{name: "Inherit with initial sizing", policy: sizingPolicy(inherit, sized), generated: "ModeOff"},
		{name: "Inherit, paused", policy: sizingPolicy(inherit, pausedPolicy), generated: "PolicyPaused", user: "PolicyPaused"},
		{name: "Recommend, not usable", policy: sizingPolicy(recommend, unusablePolicy), generated: "PolicyUnknown", user: "PolicyUnknown"},
		{name: "Recommend, opted out", policy: sizingPolicy(recommend), annotation: "true", generated: "OptedOut", user: "OptedOut"},
		{name: "opted out without a policy", annotation: "true", generated: "PolicyUnknown"},
		{name: "Recommend without initial sizing", policy: sizingPolicy(recommend, off), generated: "RecommendOnly",
			user: "InitialSizingOff"},
		{name: "Inherit without initial sizing", policy: sizingPolicy(inherit, off), generated: "ModeOff", user: "InitialSizingOff"},
		{name: "Recommend with initial sizing", policy: sizingPolicy(recommend, sized), generated: "RecommendOnly"},
		{name: "Recommend without initial sizing, paused", policy: sizingPolicy(recommend, off, pausedPolicy), generated: "PolicyPaused",
			user: "PolicyPaused"},
		{name: "initial sizing off in a policy of another namespace",
			policy:    sizingPolicy(recommend, off, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Namespaces.Names[0] = "pay" }),
			generated: "PolicyUnknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var annotations map[string]string
			if tc.annotation != "" {
				annotations = map[string]string{fleet.SkipAnnotation: tc.annotation}
			}
			written := testkit.VPA("v", testkit.Mode(vpav1.UpdateModeRecreate), testkit.Recommend("c", "cpu=2"))
			for vpa, want := range map[*vpav1.VerticalPodAutoscaler]string{
				generatedVPA(vpav1.UpdateModeOff): tc.generated, generatedVPA(vpav1.UpdateModeRecreate): tc.generated, written: tc.user,
			} {
				vpas := vpafake.NewSimpleClientset(vpa)
				if tc.policy != nil {
					require.NoError(t, vpas.Tracker().Add(tc.policy))
				}
				answer, said := created(t, webhookOf(t, clusterWithWeb(annotations), vpas))
				if want == "" {
					require.Contains(t, answer.Patch, client.PatchAdd("/spec/containers/0/resources/requests/cpu", "2"))
					require.NotContains(t, fmt.Sprint(answer.Patch), "Boost")
					continue
				}
				require.Empty(t, answer.Patch)
				require.Contains(t, said, `"Skipping new pod" pod="default/p" vpa="default/`+vpa.Name+`"`)
				require.Contains(t, said, `reason="`+want+`"`)
			}
		})
	}
}

// restricted enables sharing with a maximum of 1 CPU.
func restricted(of loadlinev1alpha1.SharingUserVPAs) func(*loadlinev1alpha1.SizingPolicySpec) {
	return func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Sharing = &loadlinev1alpha1.Sharing{Mode: new(loadlinev1alpha1.SharingOn), UserVPAs: new(of)}
		s.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MaxAllowed: testkit.List("cpu=1")}}}
	}
}

func TestPolicy_MaxAllowedBoundsUserVPAs(t *testing.T) {
	for _, tc := range []struct {
		name string
		of   loadlinev1alpha1.SharingUserVPAs
		want string
	}{
		{name: "restricted", of: loadlinev1alpha1.SharingUserVPAsRestrict, want: "1"},
		{name: "not restricted", of: loadlinev1alpha1.SharingUserVPAsOverride, want: "3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vpa := testkit.VPA("v", testkit.Mode(vpav1.UpdateModeRecreate), testkit.Recommend("c", "cpu=2"), testkit.Policy(vpav1.ContainerResourcePolicy{ContainerName: "*", MinAllowed: testkit.List("cpu=3")}))
			vpas := vpafake.NewSimpleClientset(vpa, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, restricted(tc.of)))
			answer, _ := created(t, webhookOf(t, clusterWithWeb(nil), vpas))
			require.Contains(t, answer.Patch, client.PatchAdd("/spec/containers/0/resources/requests/cpu", tc.want))
		})
	}
}

// Mode Initial applies only to new pods, so a paused policy stops it as well.
func TestPausedPolicy_SkipsNewPodsOfModeInitial(t *testing.T) {
	for policy, patched := range map[*loadlinev1alpha1.SizingPolicy]bool{
		sizingPolicy(loadlinev1alpha1.RolloutModeRecommend):               true,
		sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, pausedPolicy): false,
	} {
		vpas := vpafake.NewSimpleClientset(testkit.VPA("v", testkit.Mode(vpav1.UpdateModeInitial), testkit.Recommend("c", "cpu=2")), policy)
		answer, _ := created(t, webhookOf(t, clusterWithWeb(nil), vpas))
		require.Equal(t, patched, len(answer.Patch) > 0)
	}
}

func TestPolicyChange_AppliesToNextPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vpas := vpafake.NewSimpleClientset(testkit.VPA("v", testkit.Recommend("c", "cpu=2")))
		pods := followingWebhookOf(t, clusterWithWeb(nil), vpas)
		patched := func() bool {
			synctest.Wait()
			answer, _ := created(t, pods)
			return len(answer.Patch) > 0
		}
		require.True(t, patched())
		policies := vpas.LoadlineV1alpha1().SizingPolicies()
		_, err := policies.Create(t.Context(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, pausedPolicy), metav1.CreateOptions{})
		require.NoError(t, err)
		require.False(t, patched())
		time.Sleep(time.Second) // the first policy starts the informers that only policies need
		_, err = policies.Update(t.Context(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.True(t, patched())
		_, err = policies.Update(t.Context(), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, pausedPolicy), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.False(t, patched())
		require.NoError(t, policies.Delete(t.Context(), "fleet", metav1.DeleteOptions{}))
		require.True(t, patched())
	})
}

// The webhook must not wait for CRDs that are not installed.
func TestMissingPolicyCRD_SizesPodsOfUserVPAs(t *testing.T) {
	vpas := vpafake.NewSimpleClientset(testkit.VPA("v", testkit.Recommend("c", "cpu=2")))
	vpas.PrependReactor("list", "sizingpolicies", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: loadlinev1alpha1.GroupName, Resource: "sizingpolicies"}, "")
	})
	kube := clusterWithWeb(nil)
	kube.PrependReactor("list", "namespaces", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", nil)
	})
	began := time.Now()
	answer, _ := created(t, webhookOf(t, kube, vpas))
	require.NotEmpty(t, answer.Patch)
	require.Less(t, time.Since(began), 30*time.Second)

	made := vpafake.NewSimpleClientset(generatedVPA(vpav1.UpdateModeRecreate))
	made.ReactionChain = append(vpas.ReactionChain[:1:1], made.ReactionChain...)
	answer, _ = created(t, webhookOf(t, kube, made))
	require.Empty(t, answer.Patch)
}

func TestPodHandler_ReadsPolicyFromCaches(t *testing.T) {
	kube, vpas := clusterWithWeb(nil), vpafake.NewSimpleClientset(testkit.VPA("v", testkit.Recommend("c", "cpu=2")), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend))
	pods := webhookOf(t, kube, vpas)
	kube.ClearActions()
	vpas.ClearActions()
	answer, _ := created(t, pods)
	require.NotEmpty(t, answer.Patch)
	require.Empty(t, vpas.Actions())
	require.Empty(t, kube.Actions())
}

func TestPodsMetric_CountsUnchangedPods(t *testing.T) {
	vpas := vpafake.NewSimpleClientset(testkit.VPA("v", testkit.Recommend("c", "cpu=2")), sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, pausedPolicy))
	m := newMetrics(prometheus.NewRegistry())
	h := server.New(server.Config{Handlers: []server.Handler{webhookOf(t, clusterWithWeb(nil), vpas)}, Recorder: m}).Handler(klog.Background())
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  podRequest(t, testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))),
	})
	require.NoError(t, err)
	require.Contains(t, review(h, string(body)).Body.String(), `"allowed":true`)
	require.InDelta(t, 1, testutil.ToFloat64(m.pods.WithLabelValues("false")), 0)
}

// Most clusters have no policy, and each watch wakes the program once a minute.
func TestInformers_StartWithFirstPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube, vpas := clusterWithWeb(nil), vpafake.NewSimpleClientset(generatedVPA(vpav1.UpdateModeRecreate))
		watched := func() (kinds []string) {
			for _, action := range append(kube.Actions(), vpas.Actions()...) {
				if resource := action.GetResource().Resource; action.GetVerb() == "watch" && slices.Contains([]string{"namespaces", "horizontalpodautoscalers", "sizingrecords"}, resource) {
					kinds = append(kinds, resource)
				}
			}
			slices.Sort(kinds)
			return kinds
		}
		ctx, stop := context.WithCancel(t.Context())
		filled, err := fillCaches(ctx, Default(), &client.Clients{Kube: kube, VPA: vpas})
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- filled.refresh(ctx) }()
		time.Sleep(time.Hour)
		require.Empty(t, watched())
		answer, _ := created(t, filled.handlers[0])
		require.Empty(t, answer.Patch, "it is of a policy that nobody knows")

		_, err = vpas.LoadlineV1alpha1().SizingPolicies().Create(ctx, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, []string{"horizontalpodautoscalers", "namespaces", "sizingrecords"}, watched())
		answer, _ = created(t, filled.handlers[0])
		require.NotEmpty(t, answer.Patch)
		stop()
		require.NoError(t, <-ended)
		synctest.Wait()
	})
}

// Past harm is in the records. Until they are read, the recommendation of a user VPA may be one
// that did harm.
func TestNewPods_NotSizedBeforeRecordsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refused = 5 * time.Second // as from an API server that has not loaded its roles yet
		vpas := vpafake.NewSimpleClientset(testkit.VPA("by-hand", testkit.Mode(vpav1.UpdateModeRecreate), testkit.Recommend("c", "cpu=2")))
		begun := time.Now()
		vpas.PrependReactor("list", "sizingrecords", func(ktesting.Action) (bool, runtime.Object, error) {
			return time.Since(begun) < refused, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "sizingrecords"}, "", nil)
		})
		pods := followingWebhookOf(t, clusterWithWeb(nil), vpas)
		answer, _ := created(t, pods)
		require.NotEmpty(t, answer.Patch, "without a policy there are no records")

		_, err := vpas.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), sizingPolicy(loadlinev1alpha1.RolloutModeAuto), metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(refused / 2)
		answer, logged := created(t, pods)
		require.Empty(t, answer.Patch)
		require.Contains(t, logged, "NoRecord")

		time.Sleep(2 * refused)
		answer, _ = created(t, pods)
		require.NotEmpty(t, answer.Patch)
	})
}
