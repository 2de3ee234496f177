package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/prometheus/client_golang/prometheus"

	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/pkg/testkit"
)

// usualPod is a pod as the API server sends it: with all defaults, and with
// managed fields.
func usualPod(b testing.TB) []byte {
	raw, err := os.ReadFile("server/testdata/pod.json")
	require.NoError(b, err)
	return raw
}

// BenchmarkReview is a whole review without the network: from the body of the
// request to that of the answer.
func BenchmarkReview(b *testing.B) {
	h := handlerOf(b, found{vpa: testkit.VPA("v", testkit.Recommend("a", "cpu=150m memory=120Mi"), testkit.Recommend("b", "cpu=150m memory=120Mi"))})
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "u", Namespace: testkit.Namespace, Operation: admissionv1.Create,
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}},
	})
	require.NoError(b, err)
	body = bytes.Replace(body, []byte(`"object":null`), append([]byte(`"object":`), usualPod(b)...), 1)
	handler := server.New(server.Config{Handlers: []server.Handler{h.handler()}, Recorder: newMetrics(prometheus.NewRegistry())}).Handler(klog.Background())
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
