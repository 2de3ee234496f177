package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// absentMetrics are metrics of features that the tests do not use, with the reason.
var absentMetrics = map[string]string{
	"loadline_workload_burst_factor":                                  "--workload-metrics is off",
	"loadline_workload_confidence_ratio":                              "--workload-metrics is off",
	"loadline_workload_history_completeness_ratio":                    "--workload-metrics is off",
	"loadline_workload_last_change_ratio":                             "--workload-metrics is off",
	"loadline_workload_ooms_since_change":                             "--workload-metrics is off",
	"loadline_workload_peak_ratio":                                    "--workload-metrics is off",
	"loadline_workload_recommendation":                                "--workload-metrics is off",
	"loadline_workload_recommendation_age_seconds":                    "--workload-metrics is off",
	"loadline_workload_samples_above_target_ratio":                    "--workload-metrics is off",
	"loadline_workload_slack_ratio":                                   "--workload-metrics is off",
	"loadline_recommender_history_samples_total":                      "there is no Prometheus",
	"vpa_recommender_prometheus_client_api_requests_count":            "there is no Prometheus",
	"vpa_recommender_prometheus_client_api_requests_duration_seconds": "there is no Prometheus",
}

// Some metrics appear with the first event that they count. The parallel tests cause these events.
func TestRecommenderMetrics_AllAreServed(t *testing.T) {
	parallelTest(t)
	golden, err := os.ReadFile("../recommender/testdata/metrics.golden")
	require.NoError(t, err)
	w := smallWorkload(namespace(t, "metrics"), "web")
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, "Off"))
	awaitRecommendation(t, w)
	eventually(t, "all metrics", func() error {
		metrics, err := recommender.Metrics(t.Context())
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for name := range metrics {
			there[metricName(name)] = true
		}
		var missing []string
		for line := range strings.Lines(string(golden)) {
			name, _, _ := strings.Cut(line, "\t")
			if !there[name] && absentMetrics[name] == "" {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("missing: %s", strings.Join(missing, ", "))
		}
		return nil
	})
}

func TestRecommenderMetrics_WorkloadMetricsFlag(t *testing.T) {
	parallelTest(t)
	own := ownRecommender(t, "quality", "--workload-metrics")
	w := smallWorkload(namespace(t, "quality"), "web")
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, "Off", withRecommender("quality")))
	eventually(t, "metrics of the workload", func() error {
		metrics, err := own.Metrics(t.Context())
		if err != nil {
			return err
		}
		for _, name := range []string{"recommendation", "slack_ratio", "peak_ratio", "samples_above_target_ratio"} {
			found := slices.ContainsFunc(slices.Collect(maps.Keys(metrics)), func(series string) bool {
				return metricName(series) == "loadline_workload_"+name && strings.Contains(series, `vpa="web"`)
			})
			if !found {
				return fmt.Errorf("missing: %s", name)
			}
		}
		return nil
	})
}

// metricName returns the metric name of a series, without labels and the suffix of histogram
// buckets.
func metricName(series string) string {
	name, labels, _ := strings.Cut(series, "{")
	if strings.Contains(labels, "le=") {
		return strings.TrimSuffix(name, "_bucket")
	}
	return name
}
