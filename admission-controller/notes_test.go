package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/server"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

// podWithReservedAnnotations returns a pod that is created with Loadline's annotations and one of
// its own.
func podWithReservedAnnotations() *corev1.Pod {
	pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
	pod.Annotations = map[string]string{"team": "shop", convert.DeclaredAnnotation: `{"c":{"requests":{"memory":"64Mi"},"limits":{"memory":"64Mi"}}}`, convert.ResizedAtAnnotation: "2026-01-02T12:00:00Z", convert.OriginalAnnotation: `{"c":{"requests":{"cpu":"64"}}}`, convert.SharedAnnotation: "cpu at 2026-01-02T12:00:00Z after 0"}
	return pod
}

// Users with permission to create pods must not control the resources that the updater restores.
func TestPodHandler_RemovesReservedAnnotations(t *testing.T) {
	advised := fakeFinder{vpa: testkit.VPA("v", testkit.Recommend("c", "cpu=2"))}
	for _, tc := range []struct {
		name    string
		finder  finder
		request func(*admissionv1.AdmissionRequest)
		keeps   bool
		sized   bool
	}{
		{name: "sized pod", finder: advised, sized: true},
		{name: "dry run", finder: advised, request: func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }, sized: true},
		{name: "without VPA", finder: fakeFinder{}},
		{name: "owner cannot be read", finder: fakeFinder{err: errors.New("no such owner")}},
		{name: "namespace without VPA", finder: advised, request: func(r *admissionv1.AdmissionRequest) { r.Namespace = "without-vpa" }},
		{name: "too many containers", finder: advised, request: crowded},
		{name: "ignored namespace keeps annotations", finder: advised,
			request: func(r *admissionv1.AdmissionRequest) { r.Namespace = "ignored" }, keeps: true},
		{name: "update keeps annotations", finder: advised,
			request: func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }, keeps: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			request := podRequest(t, podWithReservedAnnotations())
			if tc.request != nil {
				tc.request(request)
			}
			answer := handlerOf(t, tc.finder).answer(t.Context(), request)
			if tc.keeps {
				require.Empty(t, answer.Patch)
				return
			}
			steps, err := json.Marshal(answer.Patch)
			require.NoError(t, err)
			patch, err := jsonpatch.DecodePatch(steps)
			require.NoError(t, err)
			raw, err := patch.Apply(request.Object.Raw)
			require.NoError(t, err)
			var pod corev1.Pod
			require.NoError(t, json.Unmarshal(raw, &pod))
			require.NotContains(t, pod.Annotations, convert.ResizedAtAnnotation)
			require.NotContains(t, pod.Annotations, convert.OriginalAnnotation)
			require.NotContains(t, pod.Annotations, convert.DeclaredAnnotation)
			require.NotContains(t, pod.Annotations, convert.SharedAnnotation)
			require.Equal(t, "shop", pod.Annotations["team"])
			require.Equal(t, tc.sized, pod.Annotations[convert.UpdatesAnnotation] != "")
			require.Contains(t, answer.Warnings,
				"annotation loadline.dev/original removed: only the updater may record the resources from before a resize")
		})
	}
}

// crowded adds more containers to a pod than the webhook reads.
func crowded(r *admissionv1.AdmissionRequest) {
	many := strings.Repeat(`{},`, server.MaxContainers) + "{}"
	r.Object.Raw = []byte(strings.Replace(string(r.Object.Raw), `"containers":[`, `"containers":[`+many+`,`, 1))
}

func TestPodHandler_NoPatchWithoutReservedAnnotations(t *testing.T) {
	pod := podWithReservedAnnotations()
	delete(pod.Annotations, convert.ResizedAtAnnotation)
	delete(pod.Annotations, convert.OriginalAnnotation)
	delete(pod.Annotations, convert.DeclaredAnnotation)
	delete(pod.Annotations, convert.SharedAnnotation)
	answer := handlerOf(t, fakeFinder{}).answer(t.Context(), podRequest(t, pod))
	require.Equal(t, server.Answer{}, answer)
}

// The removal applies despite other problems of the pod, and such pods are counted.
func TestPodHandler_CountsRemovedAnnotations(t *testing.T) {
	for finder, causes := range map[finder]map[server.Cause]float64{
		fakeFinder{}: {server.CauseNote: 1},
		fakeFinder{err: fmt.Errorf("no such owner %d", 1)}: {server.CauseNote: 0, server.CauseOwner: 1},
	} {
		m := newMetrics(prometheus.NewRegistry())
		h := server.New(server.Config{Handlers: []server.Handler{handlerOf(t, finder).handler()}, Recorder: m}).Handler(klog.Background())
		body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: podRequest(t, podWithReservedAnnotations())})
		require.NoError(t, err)
		var answer admissionv1.AdmissionReview
		require.NoError(t, json.Unmarshal(review(h, string(body)).Body.Bytes(), &answer))
		var patch []client.PatchOperation
		require.NoError(t, json.Unmarshal(answer.Response.Patch, &patch))
		require.Equal(t, []client.PatchOperation{
			client.PatchRemove("/metadata/annotations/loadline.dev~1declared-memory"),
			client.PatchRemove("/metadata/annotations/loadline.dev~1original"),
			client.PatchRemove("/metadata/annotations/loadline.dev~1resized-at"),
			client.PatchRemove("/metadata/annotations/loadline.dev~1shared"),
		}, patch)
		for cause, want := range causes {
			require.InDelta(t, want, testutil.ToFloat64(m.problems.WithLabelValues(string(cause))), 0, cause)
		}
	}
}

func TestPodHandler_ReplacesDeclaredAnnotation(t *testing.T) {
	vpa := testkit.VPA("v", testkit.Recommend("c", "memory=60Mi"))
	vpa.Status.Recommendation.ContainerRecommendations[0].UpperBound = testkit.List("memory=120Mi")
	vpa.Status.Conditions = append(vpa.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{Type: convert.SeparateMemoryLimit, Status: corev1.ConditionTrue})
	written := podWithReservedAnnotations()
	written.Spec.Containers[0] = testkit.Container("c", "memory=100Mi", "memory=150Mi")
	request := podRequest(t, written)
	answer := handlerOf(t, fakeFinder{vpa: vpa}).answer(t.Context(), request)
	steps, err := json.Marshal(answer.Patch)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(steps)
	require.NoError(t, err)
	raw, err := patch.Apply(request.Object.Raw)
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal(raw, &pod))
	require.JSONEq(t, `{"c":{"requests":{"memory":"100Mi"},"limits":{"memory":"150Mi"}}}`, pod.Annotations[convert.DeclaredAnnotation])
	require.Equal(t, "180Mi", pod.Spec.Containers[0].Resources.Limits.Memory().String())
}
