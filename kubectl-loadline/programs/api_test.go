package programs

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/kubectl-loadline/plugintest"
)

// Without a Lease the leader is unknown, so each replica is queried.
func TestExplainPod_QueriesAllReplicas(t *testing.T) {
	refused := func(code int, text string) plugintest.Response {
		return plugintest.Response{Err: apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{Resource: "pods"}, "updater", text, 0, true)}
	}
	standby := refused(http.StatusServiceUnavailable, "this replica does not lead")
	for _, tc := range []struct {
		name  string
		first plugintest.Response
		last  plugintest.Response
		want  string // expected error, empty for none
	}{
		{name: "the leader is last", first: standby, last: plugintest.Response{Text: `{"uid": "u"}`}},
		{name: "unknown to the leader", first: refused(http.StatusNotFound, "shop/web: not served by this program"), last: standby,
			want: "query the updater in namespace kube-system: shop/web: not served by this program"},
		{name: "unknown to the leader, which is last", first: standby, last: refused(http.StatusNotFound, "shop/web: not served by this program"),
			want: "query the updater in namespace kube-system: shop/web: not served by this program"},
		{name: "no JSON", first: plugintest.Response{Text: "<html>"}, last: standby,
			want: "query the updater in namespace kube-system: invalid character '<' looking for beginning of value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			labels := map[string]string{"app": "vpa-updater"}
			kube := kubefake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "a", Labels: labels}},
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "b", Labels: labels}})
			kube.AddProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
				if a.(clienttesting.ProxyGetAction).GetName() == "a" {
					return true, tc.first, nil
				}
				return true, tc.last, nil
			})
			answer, err := ExplainPod(t.Context(), kube, "kube-system", "shop", "web", time.Time{})
			if tc.want != "" {
				require.EqualError(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "u", answer.UID)
		})
	}
}
