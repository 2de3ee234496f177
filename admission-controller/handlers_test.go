package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"loadline.dev/loadline/admission-controller/mutate"
	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/admission-controller/validate"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

type fakeFinder struct {
	vpa *vpav1.VerticalPodAutoscaler
	err error
}

func (f fakeFinder) Find(context.Context, string, *corev1.Pod) (*vpav1.VerticalPodAutoscaler, error) {
	return f.vpa, f.err
}

func (fakeFinder) Serves(namespace string, _ bool) bool { return namespace != "without-vpa" }

func handlerOf(t testing.TB, f finder, ranges ...*corev1.LimitRange) podHandler {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, r := range ranges {
		require.NoError(t, indexer.Add(r))
	}
	return podHandler{
		serves:      func(namespace string) bool { return namespace != "ignored" },
		finder:      f,
		limitRanges: corelisters.NewLimitRangeLister(indexer),
		mutation:    mutate.Config{Boost: true},
	}
}

func podRequest(t *testing.T, pod any) *admissionv1.AdmissionRequest {
	raw, err := json.Marshal(pod)
	require.NoError(t, err)
	request := &admissionv1.AdmissionRequest{Namespace: testkit.Namespace, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}}
	request.Object.Raw = raw
	return request
}

func TestPodHandler_AppliesRecommendationWithinLimitRanges(t *testing.T) {
	pod := testkit.Pod("", testkit.Container("c", "cpu=100m", "cpu=100m"))
	pod.GenerateName = "web-"
	elsewhere := testkit.LimitRange("other", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=1m")})
	elsewhere.Namespace = "elsewhere"
	h := handlerOf(t, fakeFinder{vpa: testkit.VPA("v", testkit.Recommend("c", "cpu=2"))}, elsewhere,
		testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=500m")}))
	answer := h.answer(t.Context(), podRequest(t, pod))
	require.NoError(t, answer.Err)
	require.Contains(t, answer.Patch, client.PatchAdd("/spec/containers/0/resources/requests/cpu", "500m"))
}

// A recommendation for another target does not apply to this pod. The spec of the VPA still does.
func TestPodHandler_IgnoresRecommendationForOtherTarget(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=2"))
	vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3))}}
	for outdated, want := range map[bool]string{true: "300m", false: "6"} {
		h := handlerOf(t, fakeFinder{vpa: vpa})
		h.outdated = func(v *vpav1.VerticalPodAutoscaler) bool { return v == vpa && outdated }
		answer := h.answer(t.Context(), podRequest(t, testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))))
		require.NoError(t, answer.Err)
		require.Contains(t, answer.Patch, client.PatchAdd("/spec/containers/0/resources/requests/cpu", want))
		require.Equal(t, outdated, len(answer.Warnings) > 0)
		for _, warning := range answer.Warnings {
			require.Contains(t, warning, "VerticalPodAutoscaler v: skipped, because its recommendation may be for a previous target")
		}
	}
	require.NotNil(t, vpa.Status.Recommendation, "the cache is not changed")
}

// Without its unreadable bounds, the startup boost could be too large.
func TestPodHandler_IgnoresUnreadableVPA(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=2"))
	vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3))}}
	vpa.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec.resourcePolicy: quantity"}
	answer := handlerOf(t, fakeFinder{vpa: vpa}).answer(t.Context(), podRequest(t, testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))))
	require.NoError(t, answer.Err)
	require.Empty(t, answer.Patch)
	require.Equal(t, []string{"VerticalPodAutoscaler v: skipped, because it cannot be read: spec.resourcePolicy: quantity"}, answer.Warnings)
}

func TestPodHandler_SkipsPods(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "cpu=2"))
	boost := testkit.VPA("v")
	boost.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{}}
	pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
	for _, tc := range []struct {
		name   string
		finder fakeFinder
		object any
		change func(*admissionv1.AdmissionRequest)
		cause  server.Cause
		want   string
	}{
		{name: "no VPA", object: pod},
		{name: "ignored namespace", finder: fakeFinder{vpa: vpa}, object: pod,
			change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "ignored" }},
		{name: "update of a pod", finder: fakeFinder{vpa: vpa}, object: pod,
			change: func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }},
		{name: "unsupported version", finder: fakeFinder{vpa: vpa}, object: pod,
			change: func(r *admissionv1.AdmissionRequest) { r.Resource.Version = "v2" }, cause: server.CauseResource,
			want: "unsupported pod request: must be version v1 without subresource, not version \"v2\""},
		{name: "namespace without VPA", finder: fakeFinder{vpa: vpa}, object: 7,
			change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "without-vpa" }},
		{name: "too many containers", finder: fakeFinder{vpa: vpa},
			object: testkit.Pod("p", make([]corev1.Container, server.MaxContainers+1)...), cause: server.CauseTooComplex,
			want: "more than 300 containers"},
		{name: "object is no pod", finder: fakeFinder{vpa: vpa}, object: 7, cause: server.CauseObject, want: "not a pod"},
		{name: "unknown owner", finder: fakeFinder{err: errors.New("no such owner")}, object: pod, cause: server.CauseOwner,
			want: "no such owner"},
		{name: "boost that cannot be computed", finder: fakeFinder{vpa: boost}, object: pod, cause: server.CauseBoost,
			want: "VerticalPodAutoscaler default/v: container \"c\": startup boost cannot be computed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			request := podRequest(t, tc.object)
			if tc.change != nil {
				tc.change(request)
			}
			answer := handlerOf(t, tc.finder).answer(t.Context(), request)
			require.Empty(t, answer.Patch)
			require.Nil(t, answer.Refusal)
			require.Equal(t, tc.cause, answer.Cause)
			if tc.want != "" {
				require.ErrorContains(t, answer.Err, tc.want)
			}
		})
	}
}

func TestVPAHandler_ComparesWithOldObjectOnlyOnUpdate(t *testing.T) {
	inPlace, err := json.Marshal(testkit.VPA("v", testkit.Mode(vpav1.UpdateModeInPlace)))
	require.NoError(t, err)
	request := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "v"}
	request.Object.Raw, request.OldObject.Raw = inPlace, inPlace
	answer := vpaHandler(validate.Config{}, silent, ignored).Answer(t.Context(), request)
	require.Equal(t, int32(422), answer.Refusal.Code)
	require.Contains(t, answer.Refusal.Message, `VerticalPodAutoscaler.autoscaling.k8s.io "v" is invalid: spec.updatePolicy.updateMode`)
	request.Operation = admissionv1.Update
	require.Nil(t, vpaHandler(validate.Config{}, silent, ignored).Answer(t.Context(), request).Refusal)
}

func silent(context.Context, *vpav1.VerticalPodAutoscaler, *vpav1.VerticalPodAutoscaler) []string {
	return nil
}

func ignored(*vpav1.VerticalPodAutoscaler) {}

func TestVPAHandler_RecordsCreatedVPAs(t *testing.T) {
	for _, tc := range []struct {
		name      string
		operation admissionv1.Operation
		mode      vpav1.UpdateMode
		dryRun    bool
		want      []string
	}{
		{name: "create", operation: admissionv1.Create, mode: vpav1.UpdateModeRecreate, want: []string{"shop/v"}},
		{name: "dry run", operation: admissionv1.Create, mode: vpav1.UpdateModeRecreate, dryRun: true},
		{name: "update", operation: admissionv1.Update, mode: vpav1.UpdateModeRecreate},
		{name: "refused", operation: admissionv1.Create, mode: "Never"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw, err := json.Marshal(testkit.VPA("v", testkit.Mode(tc.mode)))
			require.NoError(t, err)
			request := &admissionv1.AdmissionRequest{Operation: tc.operation, Name: "v", Namespace: "shop", DryRun: &tc.dryRun}
			request.Object.Raw, request.OldObject.Raw = raw, raw
			var noted []string
			vpaHandler(validate.Config{}, silent, func(vpa *vpav1.VerticalPodAutoscaler) {
				noted = append(noted, vpa.Namespace+"/"+vpa.Name)
			}).Answer(t.Context(), request)
			require.Equal(t, tc.want, noted)
		})
	}
}

func TestVPAHandler_AddsWarningsToAcceptedVPAs(t *testing.T) {
	raw, err := json.Marshal(testkit.VPA("v", testkit.Mode(vpav1.UpdateModeAuto)))
	require.NoError(t, err)
	request := &admissionv1.AdmissionRequest{Operation: admissionv1.Update, Name: "v", Namespace: "shop"}
	request.Object.Raw, request.OldObject.Raw = raw, raw
	h := vpaHandler(validate.Config{}, func(_ context.Context, vpa, old *vpav1.VerticalPodAutoscaler) []string {
		require.Equal(t, "shop", vpa.Namespace)
		require.NotNil(t, old)
		return []string{"look here"}
	}, ignored)
	answer := h.Answer(t.Context(), request)
	require.Len(t, answer.Warnings, 2)
	require.Equal(t, "look here", answer.Warnings[1])
}

func TestPodHandler_TreatsDryRunLikeCreate(t *testing.T) {
	h := handlerOf(t, fakeFinder{vpa: testkit.VPA("v", testkit.Recommend("c", "cpu=2"))})
	request := podRequest(t, testkit.Pod("p", testkit.Container("c", "cpu=100m", "")))
	want := h.answer(t.Context(), request).Patch
	request.DryRun = new(true)
	require.Equal(t, want, h.answer(t.Context(), request).Patch)
	require.NotEmpty(t, want)
}

// Most pods have no name at admission, so problems are logged with the generateName.
func TestPodHandler_LogsGenerateNameOfUnnamedPods(t *testing.T) {
	pod := testkit.Pod("", testkit.Container("c", "cpu=100m", ""))
	pod.GenerateName = "web-1-"
	request := podRequest(t, pod)
	answer := handlerOf(t, fakeFinder{err: errors.New("no such owner")}).answer(t.Context(), request)
	require.Equal(t, server.CauseOwner, answer.Cause)
	require.Equal(t, "web-1-%", request.Name, "what the server logs")
}

// Kubernetes controllers do not show admission warnings to users, so the log has them.
func TestPodHandler_LogsCappedResources(t *testing.T) {
	var text bytes.Buffer
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text), textlogger.Verbosity(2)))
	h := handlerOf(t, fakeFinder{vpa: testkit.VPA("v", testkit.Recommend("c", "cpu=2"))},
		testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=500m")}))
	answer := h.answer(klog.NewContext(t.Context(), log), podRequest(t, testkit.Pod("p", testkit.Container("c", "cpu=100m", "cpu=100m"))))
	require.Len(t, answer.Warnings, 1)
	require.Empty(t, text.String(), "it can wait until the answer has left")
	answer.After()
	require.Contains(t, text.String(), `"New pod gets the resources of its VPA"`)
	require.Contains(t, text.String(), "cpu cut from 2 to 500m to fit the LimitRanges of namespace default")
}

func TestPodHandler_CapsPodsToResourceQuota(t *testing.T) {
	h := handlerOf(t, fakeFinder{vpa: testkit.VPA("v", testkit.Recommend("c", "cpu=2"))})
	h.quotas = func(namespace string) []*corev1.ResourceQuota {
		require.Equal(t, testkit.Namespace, namespace)
		return []*corev1.ResourceQuota{{Status: corev1.ResourceQuotaStatus{Hard: testkit.List("cpu=3"), Used: testkit.List("cpu=1500m")}}}
	}
	answer := h.answer(t.Context(), podRequest(t, testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))))
	require.Contains(t, answer.Patch, client.PatchAdd("/spec/containers/0/resources/requests/cpu", "1500m"))
	require.Len(t, answer.Warnings, 1)
}

func TestPodHandler_PatchesUnusualPods(t *testing.T) {
	many := testkit.Pod("p")
	for i := range 50 {
		many.Spec.Containers = append(many.Spec.Containers, testkit.Container(fmt.Sprintf("c%d", i), "cpu=100m memory=10Mi", "cpu=200m"))
	}
	ephemeral := testkit.Pod("p", testkit.Container("c1", "cpu=100m", ""))
	ephemeral.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "c1", Image: "debug"}}}
	windows := testkit.Pod("p", testkit.Container("c1", "cpu=100m", ""))
	windows.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	odd := testkit.Pod("", testkit.Container("c1", "cpu=100m example.com/a~b=3", ""))
	odd.GenerateName = "web-"
	odd.Annotations = map[string]string{"a/b~c": "\"}\u2028<", "vpaUpdates": "old"}
	odd.Labels["x"] = "é\"\\"
	twins := testkit.Pod("p", testkit.Container("c1", "cpu=100m", ""), testkit.Container("c1", "", "cpu=1"))
	vpa := testkit.VPA("v")
	for i := range 50 {
		testkit.Recommend(fmt.Sprintf("c%d", i), "cpu=150m memory=20Mi")(vpa)
	}
	for name, pod := range map[string]*corev1.Pod{"50 containers": many, "ephemeral containers": ephemeral, "windows": windows, "odd names": odd, "two containers of one name": twins, "no containers": testkit.Pod("p")} {
		request := podRequest(t, pod)
		answer := handlerOf(t, fakeFinder{vpa: vpa}).answer(t.Context(), request)
		require.NoError(t, answer.Err, name)
		text, err := json.Marshal(answer.Patch)
		require.NoError(t, err, name)
		decoded, err := jsonpatch.DecodePatch(text)
		require.NoError(t, err, name)
		patched, err := decoded.Apply(request.Object.Raw)
		require.NoError(t, err, "%s: %s", name, text)
		var got corev1.Pod
		require.NoError(t, json.Unmarshal(patched, &got), name)
		for i, c := range got.Spec.Containers {
			require.Equal(t, "150m", c.Resources.Requests.Cpu().String(), "%s: container %d", name, i)
		}
		require.Contains(t, got.Annotations, "vpaObservedContainers", name)
		got.Annotations, got.Spec.Containers = pod.Annotations, pod.Spec.Containers
		wanted, err := json.Marshal(pod)
		require.NoError(t, err)
		rest, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, string(wanted), string(rest), "%s: nothing else changes", name)
	}
}

func TestPolicyHandler_ComparesWithOldObjectOnlyOnUpdate(t *testing.T) {
	request := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "p"}
	request.Object.Raw = []byte(`{"spec":{"namespaces":{"names":["*"]},"workloads":[{"apiVersion":"apps/v1","kind":"Deployment"}],"rollout":{"canary":{"percentage":0}}}}`)
	request.OldObject.Raw = request.Object.Raw
	handler := policyHandler(validate.Config{})
	require.Equal(t, metav1.GroupResource{Group: "loadline.dev", Resource: "sizingpolicies"}, handler.Resource)
	require.False(t, handler.Guards, "who pauses a policy must not be refused because pods keep the program busy")
	answer := handler.Answer(t.Context(), request)
	require.Equal(t, int32(422), answer.Refusal.Code)
	require.Contains(t, answer.Refusal.Message, `SizingPolicy.loadline.dev "p" is invalid: spec.rollout.canary.percentage: Invalid value: 0: must be from 1 to 100`)
	require.Len(t, answer.Warnings, 1)
	require.Contains(t, answer.Warnings[0], `"*" selects every namespace`)
	request.Operation = admissionv1.Update
	answer = handler.Answer(t.Context(), request)
	require.Nil(t, answer.Refusal)
	require.Len(t, answer.Warnings, 2)
}
