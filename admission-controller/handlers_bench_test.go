package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/prometheus/client_golang/prometheus"

	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/pkg/testkit"
)

// usualPod is a pod as the API server sends it: with all defaults, and with
// managed fields.
func usualPod(b testing.TB) []byte {
	pod := testkit.Pod("", testkit.Container("a", "cpu=100m memory=100Mi", "cpu=200m memory=200Mi"), testkit.Container("b", "cpu=100m memory=100Mi", ""))
	pod.GenerateName = "web-7c5ddbdf54-"
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7c5ddbdf54", UID: "0b5c6f7e-4a0e-4f55-8d1f-0c8f2b1f7a11", Controller: new(true), BlockOwnerDeletion: new(true)}}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Image, c.ImagePullPolicy, c.TerminationMessagePath = "registry.example.com/team/web:v1.2.3", corev1.PullIfNotPresent, "/dev/termination-log"
		c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
		for _, name := range []string{"LOG_LEVEL", "DATABASE_URL", "CACHE_SIZE", "REGION"} {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: "some value of usual length"})
		}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access-x7k2p", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz"}}, PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))},
		{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))}}
	fields := `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0b5c6f7e-4a0e-4f55-8d1f-0c8f2b1f7a11\"}":{}}},` +
		`"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{}}}`
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}}
	raw, err := json.Marshal(pod)
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
