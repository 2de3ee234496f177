package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/prometheus/client_golang/prometheus"

	"loadline.dev/loadline/admission-controller/server"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/testkit"
)

// typicalPod returns a pod as the API server sends it, with all defaults and managed fields.
func typicalPod(b testing.TB) []byte {
	raw, err := os.ReadFile("server/testdata/pod.json")
	require.NoError(b, err)
	return raw
}

// BenchmarkReview measures a review without the network, from request body to response body. The
// VPA and the policy come from informers.
func BenchmarkReview(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	both := func(vpa *vpav1.VerticalPodAutoscaler) {
		for _, container := range []string{"a", "b"} {
			testkit.Recommend(container, "cpu=150m memory=120Mi")(vpa)
		}
	}
	made := generatedVPA(vpav1.UpdateModeOff)
	made.Status.Recommendation = testkit.VPA("v", both).Status.Recommendation
	auto := sizingPolicy(loadlinev1alpha1.RolloutModeAuto)
	record := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.Namespace, Name: made.Name}}
	for _, c := range []struct {
		name    string
		objects []runtime.Object
	}{
		{"person's VPA", []runtime.Object{testkit.VPA("v", both)}},
		{"person's VPA under a policy", []runtime.Object{testkit.VPA("v", both), auto, record}},
		{"made VPA", []runtime.Object{made, auto, record}},
	} {
		b.Run(c.name, func(b *testing.B) {
			benchmarkReview(b, webhookOf(b, clusterWithWeb(nil), vpafake.NewSimpleClientset(c.objects...)))
		})
	}
}

func benchmarkReview(b *testing.B, pods server.Handler) {
	pod := bytes.ReplaceAll(typicalPod(b), []byte("web-7c5ddbdf54"), []byte("web-1"))
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "u", Namespace: testkit.Namespace, Operation: admissionv1.Create,
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}},
	})
	require.NoError(b, err)
	body = bytes.Replace(body, []byte(`"object":null`), append([]byte(`"object":`), pod...), 1)
	handler := server.New(server.Config{Handlers: []server.Handler{pods}, Recorder: newMetrics(prometheus.NewRegistry())}).Handler(klog.Background())
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "/", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		if !bytes.Contains(w.Body.Bytes(), []byte(`"patch"`)) {
			b.Fatalf("answer %s", w.Body)
		}
	}
}
