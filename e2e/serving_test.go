package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// A recommender with a name serves the VPAs that name it, and nobody else does;
// it leaves those alone that name none.
func TestNamedRecommender(t *testing.T) {
	together(t)
	ns := namespace(t, "named")
	plain := modest(ns, "plain")
	named := modest(ns, "named")
	for _, w := range []harness.Workload{plain, named} {
		require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	}
	require.NoError(t, cluster.CreateVPA(t.Context(), plain, vpav1.UpdateModeOff))
	require.NoError(t, cluster.CreateVPA(t.Context(), named, vpav1.UpdateModeOff, naming("blue")))
	awaitRecommendation(t, plain)
	during(t, 5*time.Second, func() { unserved(t, named) })
	blue := ownRecommender(t, "blue")
	awaitRecommendation(t, named)
	require.Equal(t, 1, served(t, blue), "VPAs that blue serves")
}

// A recommender can be limited to one namespace, or told to leave some alone.
func TestNamespaces(t *testing.T) {
	together(t)
	for name, flag := range map[string]string{
		"narrow":   "--vpa-object-namespace=narrow-inside",
		"ignoring": "--ignored-vpa-object-namespaces=somewhere,ignoring-outside",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside, outside := modest(namespace(t, name+"-inside"), "web"), modest(namespace(t, name+"-outside"), "web")
			for _, w := range []harness.Workload{inside, outside} {
				require.NoError(t, cluster.CreateWorkload(t.Context(), w))
				require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, naming(name)))
			}
			awaitRunning(t, outside)
			own := ownRecommender(t, name, flag)
			awaitRecommendation(t, inside)
			during(t, 5*time.Second, func() { unserved(t, outside) })
			require.Equal(t, 1, served(t, own))
		})
	}
}

// modest is a small workload whose usage is steady.
func modest(ns, name string) harness.Workload {
	return harness.Workload{
		Namespace: ns, Name: name, Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "200m", "300Mi"),
	}
}

// unserved requires that no recommender has written into the status of a VPA.
func unserved(t *testing.T, w harness.Workload) {
	t.Helper()
	status := getVPA(t, w).Status
	require.Nil(t, status.Recommendation)
	require.Empty(t, status.Conditions)
}

// served says how many VPAs a recommender counts as its own.
func served(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	metrics, err := d.Metrics(t.Context())
	require.NoError(t, err)
	sum := 0
	for name, value := range metrics {
		if metricName(name) == "vpa_recommender_vpa_objects_count" {
			sum += int(value)
		}
	}
	return sum
}

// While the metrics API is away the recommender says so once, goes on with the
// rest, and takes up usage when the API is back. This test does not run beside
// the others, which need that API.
func TestMetricsAPIGoneAndBack(t *testing.T) {
	inTurn(t)
	const service = "apiservice/v1beta1.metrics.k8s.io"
	definition, err := cluster.KubectlOutput(t.Context(), "get", service, "-o=json")
	require.NoError(t, err)
	w := modest(namespace(t, "outage"), "web")
	missing := harness.Workload{Namespace: w.Namespace, Name: "missing"}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	logged := logSize(t, recommender)
	require.NoError(t, cluster.Kubectl(t.Context(), "delete", service))
	back := false
	restore := func() {
		if !back {
			back = true
			apply(t, cleaned(t, definition))
		}
	}
	defer restore()

	eventually(t, "the recommender notices", func() error {
		if n := logLines(t, recommender, logged, outageLine); n != 1 {
			return fmt.Errorf("%d lines say so", n)
		}
		return nil
	})
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff))
	require.NoError(t, cluster.CreateVPA(t.Context(), missing, vpav1.UpdateModeOff))
	eventually(t, "status of a new VPA", func() error {
		for _, condition := range getVPA(t, missing).Status.Conditions {
			if condition.Type == vpav1.ConfigUnsupported && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", getVPA(t, missing).Status.Conditions)
	})
	during(t, 7*time.Second, func() {})
	require.Equal(t, 1, logLines(t, recommender, logged, outageLine), "one line for one outage")
	restore()
	awaitRecommendation(t, w)
	require.Equal(t, 1, logLines(t, recommender, logged, "The metrics API answers again"))
}

// outageLine is what the log says when the metrics API is away.
const outageLine = "The metrics API does not answer"
