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

func TestRecommender_ServesOnlyVPAsThatNameIt(t *testing.T) {
	parallelTest(t)
	ns := namespace(t, "named")
	plain := smallWorkload(ns, "plain")
	named := smallWorkload(ns, "named")
	for _, w := range []harness.Workload{plain, named} {
		require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	}
	require.NoError(t, cluster.CreateVPA(t.Context(), plain, vpav1.UpdateModeOff))
	require.NoError(t, cluster.CreateVPA(t.Context(), named, vpav1.UpdateModeOff, withRecommender("blue")))
	awaitRecommendation(t, plain)
	during(t, 5*time.Second, func() { requireUnserved(t, named) })
	blue := ownRecommender(t, "blue")
	awaitRecommendation(t, named)
	require.Equal(t, 1, servedVPAs(t, blue), "VPAs that blue serves")
}

func TestRecommender_NamespaceFlags(t *testing.T) {
	parallelTest(t)
	for name, flag := range map[string]string{
		"narrow":   "--vpa-object-namespace=narrow-inside",
		"ignoring": "--ignored-vpa-object-namespaces=somewhere,ignoring-outside",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside, outside := smallWorkload(namespace(t, name+"-inside"), "web"), smallWorkload(namespace(t, name+"-outside"), "web")
			for _, w := range []harness.Workload{inside, outside} {
				require.NoError(t, cluster.CreateWorkload(t.Context(), w))
				require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withRecommender(name)))
			}
			awaitRunning(t, outside)
			own := ownRecommender(t, name, flag)
			awaitRecommendation(t, inside)
			during(t, 5*time.Second, func() { requireUnserved(t, outside) })
			require.Equal(t, 1, servedVPAs(t, own))
		})
	}
}

func smallWorkload(ns, name string) harness.Workload {
	return harness.Workload{
		Namespace: ns, Name: name, Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "200m", "300Mi"),
	}
}

func requireUnserved(t *testing.T, w harness.Workload) {
	t.Helper()
	status := getVPA(t, w).Status
	require.Nil(t, status.Recommendation)
	require.Empty(t, status.Conditions)
}

func servedVPAs(t *testing.T, d *harness.Daemon) int {
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

// During an outage the recommender logs once and continues with everything else. The test must not
// run in parallel with others, which need the metrics API.
func TestRecommender_SurvivesMetricsAPIOutage(t *testing.T) {
	sequentialTest(t)
	const service = "apiservice/v1beta1.metrics.k8s.io"
	definition, err := cluster.KubectlOutput(t.Context(), "get", service, "-o=json")
	require.NoError(t, err)
	w := smallWorkload(namespace(t, "outage"), "web")
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
	require.Equal(t, 1, logLines(t, recommender, logged, "The metrics API is available again"))
}

const outageLine = "The metrics API is not available"
