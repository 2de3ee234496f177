package admission

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

type slowClient struct {
	kubernetes.Interface
	discovery discovery.DiscoveryInterfaces
	requests  atomic.Int32
}

func (d *slowClient) Discovery() discovery.DiscoveryInterfaces { return d.discovery }

// IsWatchListSemanticsUnSupported is true, as in the fake client: informers list, then watch.
func (*slowClient) IsWatchListSemanticsUnSupported() bool { return true }

// newVPAHandler returns the handler of VPAs with the real resolver. Its API server has the Deployment web and delays
// each request by latency.
func newVPAHandler(t testing.TB, latency time.Duration) (*slowClient, server.Handler) {
	t.Helper()
	d := &slowClient{}
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

func creationFor(t testing.TB, deployment string) *admissionv1.AdmissionRequest {
	raw, err := json.Marshal(testkit.VPA("v", func(v *vpav1.VerticalPodAutoscaler) { v.Spec.TargetRef.Name = deployment }))
	require.NoError(t, err)
	request := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "v", Namespace: testkit.Namespace}
	request.Object.Raw = raw
	return request
}

// The handler lists target and HPAs in parallel and does not wait for the caches.
func TestVPAHandler_AdmitsAbsentTargetsWithoutDelay(t *testing.T) {
	const latency = 60 * time.Millisecond
	d, handler := newVPAHandler(t, latency)
	for _, tc := range []struct {
		name, deployment string
		requests         int32
	}{
		{name: "target exists", deployment: "web", requests: 1},
		{name: "target does not exist", deployment: "missing", requests: 2},
		{name: "same target again", deployment: "missing", requests: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fastest := time.Hour
			for range 3 { // the machine may be busy
				d.requests.Store(0)
				began := time.Now()
				answer := handler.Answer(t.Context(), creationFor(t, tc.deployment))
				fastest = min(fastest, time.Since(began))
				require.Nil(t, answer.Refusal)
				require.Equal(t, tc.requests, d.requests.Load())
				require.Equal(t, tc.deployment == "missing", len(answer.Warnings) > 0)
			}
			require.Less(t, fastest, 2*latency, "sequential requests take longer")
		})
	}
}

// BenchmarkReviewOfVPA compares VPAs with and without an existing target, without latency and with the latency of a
// typical API server.
func BenchmarkReviewOfVPA(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	for _, latency := range []time.Duration{0, 3 * time.Millisecond} {
		for _, deployment := range []string{"web", "missing"} {
			b.Run(latency.String()+"/"+deployment, func(b *testing.B) {
				_, handler := newVPAHandler(b, latency)
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
