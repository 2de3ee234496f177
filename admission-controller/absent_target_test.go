package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/server"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

// distant is a client of an API server that takes a while for each request of a review.
type distant struct {
	kubernetes.Interface
	discovery discovery.DiscoveryInterfaces
	requests  atomic.Int32
}

func (d *distant) Discovery() discovery.DiscoveryInterfaces { return d.discovery }

// IsWatchListSemanticsUnSupported is that of the fake client behind it: informers list, then watch.
func (*distant) IsWatchListSemanticsUnSupported() bool { return true }

// reviewsOf returns the handler of VPAs with the real resolver, whose API server has the Deployment web and
// answers each request after a while.
func reviewsOf(t testing.TB, latency time.Duration) (*distant, server.Handler) {
	t.Helper()
	d := &distant{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		d.requests.Add(1)
		time.Sleep(latency)
		_, _ = w.Write([]byte(`{}`)) // no HorizontalPodAutoscalers
	}))
	t.Cleanup(api.Close)
	discovery, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: api.URL, QPS: -1})
	require.NoError(t, err)
	kube := clusterWithWeb(nil)
	d.Interface, d.discovery = kube, discovery
	filled, err := fillCaches(t.Context(), Default(), &client.Clients{Kube: d, VPA: vpafake.NewSimpleClientset()})
	require.NoError(t, err)
	kube.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		d.requests.Add(1)
		time.Sleep(latency)
		return false, nil, nil
	})
	return d, filled.handlers[1]
}

// creationFor is the creation of a VPA for a Deployment.
func creationFor(t testing.TB, deployment string) *admissionv1.AdmissionRequest {
	raw, err := json.Marshal(testkit.VPA("v", func(v *vpav1.VerticalPodAutoscaler) { v.Spec.TargetRef.Name = deployment }))
	require.NoError(t, err)
	request := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "v", Namespace: testkit.Namespace}
	request.Object.Raw = raw
	return request
}

// A VPA whose target does not exist is admitted as fast as any other: the list of the target by name and that
// of HorizontalPodAutoscalers, which each VPA takes, are sent at once, and nothing waits for the caches.
func TestVPAHandler_AnAbsentTargetTakesNoLonger(t *testing.T) {
	const latency = 60 * time.Millisecond
	d, handler := reviewsOf(t, latency)
	for _, tc := range []struct {
		name, deployment string
		requests         int32
	}{
		{name: "target exists", deployment: "web", requests: 1},
		{name: "target does not exist", deployment: "missing", requests: 2},
		{name: "again", deployment: "missing", requests: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fastest := time.Hour
			for range 3 { // others may need the machine
				d.requests.Store(0)
				began := time.Now()
				answer := handler.Answer(t.Context(), creationFor(t, tc.deployment))
				fastest = min(fastest, time.Since(began))
				require.Nil(t, answer.Refusal)
				require.Equal(t, tc.requests, d.requests.Load())
				require.Equal(t, tc.deployment == "missing", len(answer.Warnings) > 0)
			}
			require.Less(t, fastest, 2*latency, "one after the other they would take as long")
		})
	}
}

// BenchmarkReviewOfVPA compares VPAs whose targets exist with those whose targets do not, without
// latency and with that of a usual API server.
func BenchmarkReviewOfVPA(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	for _, latency := range []time.Duration{0, 3 * time.Millisecond} {
		for _, deployment := range []string{"web", "missing"} {
			b.Run(latency.String()+"/"+deployment, func(b *testing.B) {
				_, handler := reviewsOf(b, latency)
				request := creationFor(b, deployment)
				b.ReportAllocs()
				for b.Loop() {
					if handler.Answer(b.Context(), request).Refusal != nil {
						b.Fatal("refused")
					}
				}
			})
		}
	}
}
