package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func requireBoosts(t *testing.T, namespace string, workloads int, labels map[string]string) {
	t.Helper()
	require.NoError(t, cluster.CreateNamespace(t.Context(), namespace))
	workload := func(i int) harness.Workload {
		return harness.Workload{Namespace: namespace, Name: fmt.Sprint("web-", i), Replicas: 1, Containers: []harness.Container{{Name: "app", CPU: "10m", Memory: "10Mi"}}}
	}
	boosting := func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Labels = labels
		vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(3)), DurationSeconds: new(int32(3600))}}
	}
	require.NoError(t, harness.Each(t.Context(), workloads, func(ctx context.Context, i int) error {
		if err := cluster.CreateVPA(ctx, workload(i), vpav1.UpdateModeOff, boosting); err != nil {
			return err
		}
		return cluster.CreateWorkload(ctx, workload(i))
	}))
	for i := range workloads {
		awaitSized(t, workload(i), "30m")
	}
	events, err := cluster.Kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=InPlaceResizedByVPA"})
	require.NoError(t, err)
	t.Logf("%d pods boosted at their creation, %d in place", workloads-len(events.Items), len(events.Items))
}

// The informers of the webhook and the updater may receive a VPA after its first pod is created.
func TestBoost_AppliesToPodsCreatedRightAfterTheirVPA(t *testing.T) {
	parallelTest(t)
	requireBoosts(t, "boosted-at-once", 40, nil)
}

// A webhook replica does not wait for VPAs that another replica has admitted.
func TestBoost_AppliesToVPAsAdmittedByAnotherReplica(t *testing.T) {
	exclusiveTest(t, processFirst) // it changes which VPAs the shared webhook admits
	const label = "e2e.loadline.dev/replica"
	configurations := cluster.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	shared, err := configurations.Get(t.Context(), "vpa-webhook-config", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, shared.Webhooks, 1)
	registered, err := url.Parse(*shared.Webhooks[0].ClientConfig.URL)
	require.NoError(t, err)
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	second, err := cluster.Daemon(t.Context(), "admission-controller", "admission-controller-second", alpha,
		"--port="+port, "--register-by-url", "--webhook-address=https://"+registered.Hostname(),
		"--webhook-port="+registered.Port(), "--webhook-timeout-seconds=5")
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(second.Stop)

	// The second replica admits VPAs with the label. The shared replica admits their pods.
	setSelector := func(ctx context.Context, expressions string) {
		patch := fmt.Appendf(nil, `{"webhooks":[{"name":%q,"objectSelector":{"matchExpressions":[%s]}}]}`, shared.Webhooks[0].Name, expressions)
		_, err := configurations.Patch(ctx, shared.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	setSelector(t.Context(), `{"key":"`+label+`","operator":"DoesNotExist"}`)
	hook := shared.Webhooks[0].DeepCopy()
	hook.Name, hook.ClientConfig.URL = "second.vpa.k8s.io", new("https://"+address)
	hook.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: "second"}}
	own := &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "boost-second-replica"}, Webhooks: []admissionv1.MutatingWebhook{*hook},
	}
	_, err = configurations.Create(t.Context(), own, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, configurations.Delete(ctx, own.Name, metav1.DeleteOptions{}))
		setSelector(ctx, "")
	})
	reviews := func() float64 {
		metrics, err := second.Metrics(t.Context())
		require.NoError(t, err)
		return metrics[`loadline_admission_controller_review_duration_seconds_count{resource="VPA"}`]
	}
	labels := map[string]string{label: "second"}
	awaitReviews(t, labels, reviews)
	before := reviews()
	requireBoosts(t, "boosted-by-replicas", 40, labels)
	require.Greater(t, reviews()-before, 20.0, "the second replica admits VPAs")
}

// awaitReviews creates VPAs until a webhook reviews one: the API server reads a new configuration with a delay.
func awaitReviews(t *testing.T, labels map[string]string, reviews func() float64) {
	t.Helper()
	const namespace = "boost-probes"
	require.NoError(t, cluster.CreateNamespace(t.Context(), namespace))
	for i := range 120 {
		probe := harness.Workload{Namespace: namespace, Name: fmt.Sprint("probe-", i)}
		require.NoError(t, cluster.CreateVPA(t.Context(), probe, vpav1.UpdateModeOff, func(vpa *vpav1.VerticalPodAutoscaler) { vpa.Labels = labels }))
		if reviews() > 0 {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Fatal("the webhook has reviewed no VPA within a minute")
}
