package updater

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

// killed simulates a kubelet that has applied the last resize and an OOM kill of the container.
func (r *rolling) killed(name string, after time.Duration) {
	r.t.Helper()
	r.change(name, func(p *corev1.Pod) {
		s := killedAt("app", noon.Add(after), 1)
		s.Resources = p.Spec.Containers[0].Resources.DeepCopy()
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	})
}

// The recommender sees the kill while the revert is pending, and recommends less than the pod had
// before.
func TestOOMResize_DoesNotOverwriteRevert(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.killed("web-1-0", time.Minute)
	r.judge(61 * time.Second)
	require.Equal(t, "100m 100Mi", r.requests("web-1-0"))

	r.recommend("50m", "70Mi")
	r.now = noon.Add(63 * time.Second)
	r.loop.RunOOM(t.Context(), r.now, []cache.ObjectName{cache.NewObjectName("shop", "deployment-web")})
	require.Equal(t, "100m 100Mi", r.requests("web-1-0"), "the kubelet has not acted yet")
	require.Equal(t, "200Mi", r.pod("web-1-0").Spec.Containers[0].Resources.Limits.Memory().String())
}

// raisedMeanwhile simulates another client that raises the memory of a pod just before the
// updater's resize. It answers a failed patch test like the API server.
func (r *rolling) raisedMeanwhile(name string) {
	raised := false
	r.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "resize" || raised {
			return false, nil, nil
		}
		raised = true
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		object, err := r.kube.Tracker().Get(pods, "shop", name)
		require.NoError(r.t, err)
		pod := object.(*corev1.Pod).DeepCopy()
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = list("1", "2Gi")[corev1.ResourceMemory]
		require.NoError(r.t, r.kube.Tracker().Update(pods, pod, "shop"))
		return true, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{}, "", "test failed", 0, false)
	})
}

func TestResize_StalePlanIsNoFailedAttempt(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	r.raisedMeanwhile("web-1-0")
	require.Empty(t, r.at(0))
	require.Equal(t, "100m 2Gi", r.requests("web-1-0"))
	require.Empty(t, r.noted())
	require.GreaterOrEqual(t, r.skipped("PodChanged"), 1)
	require.Zero(t, r.value("vpa_updater_failed_in_place_update_attempts_total", "vpa_name", "deployment-web"))
	require.NotContains(t, r.pod("web-1-0").Annotations, convert.BackoffAnnotation)
	r.settled("web-1-0")
	require.Equal(t, []string{"web-1-0"}, r.at(time.Minute), "the next iteration plans with its present sizes")
	require.Equal(t, "50m 50Mi", r.requests("web-1-0"))
}
