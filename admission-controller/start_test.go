package admission

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

// Readiness probes the port of the webhook, so it stays closed until the caches are filled. The API
// server in this test answers but never returns a list.
func TestRun_ServesOnlyWithFilledCaches(t *testing.T) {
	asked := make(chan struct{}, 1)
	apiServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = fmt.Fprint(w, `{"major":"1","minor":"36"}`)
			return
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	defer apiServer.Close()
	config := Default()
	config.Kube.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config.Kube.Kubeconfig, fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, apiServer.URL), 0o600))
	config.Serving.Address = "127.0.0.1:0"
	port := freePort(t)
	_, err := fmt.Sscan(port, &config.Port)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config, process.OS{}) }()
	<-asked
	require.Never(t, func() bool {
		connection, err := net.Dial("tcp", "127.0.0.1:"+port)
		return err == nil && connection.Close() == nil
	}, time.Second, 20*time.Millisecond)
	stop()
	t.Logf("told to end: %v", <-ended)
}

// Cached API resources and objects of custom controllers expire, so that changes are noticed.
func TestFollow_RefreshesCustomControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		kube.Resources = []*metav1.APIResourceList{{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment"}}}}
		vpas := vpafake.NewSimpleClientset(testkit.VPA("v", func(v *vpav1.VerticalPodAutoscaler) {
			v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "web"}
		}))
		asked := func() (times int) {
			for _, action := range kube.Actions() {
				if action.GetResource().Resource == "group" || action.GetResource().Resource == "resource" {
					times++
				}
			}
			return times
		}
		ctx, stop := context.WithCancel(t.Context())
		filled, err := fillCaches(ctx, Default(), &client.Clients{Kube: kube, VPA: vpas})
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- filled.refresh(ctx) }()
		time.Sleep(time.Minute)
		before := asked()
		require.Positive(t, before, "it was read ahead")
		time.Sleep(30 * time.Minute)
		require.Greater(t, asked(), before)
		stop()
		require.NoError(t, <-ended)
		synctest.Wait()
	})
}
