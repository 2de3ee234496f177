package prometheus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/updater/nodeload"
)

// Two minutes of node_load1 in a real Prometheus decide which nodes are overloaded.
func TestNodeLoadSource_ReadsMinimumOfTwoMinutes(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Minute).Add(-time.Hour)
	text := "# TYPE node_load1 gauge\n"
	scrape := func(instance string, from, till time.Duration, load func(at time.Duration) float64) {
		for at := from; at <= till; at += 15 * time.Second {
			text += fmt.Sprintf("node_load1{job=\"node-exporter\",instance=%q} %g %d\n", instance, load(at), now.Add(at).Unix())
		}
	}
	always := func(load float64) func(time.Duration) float64 { return func(time.Duration) float64 { return load } }
	const early, late = -20 * time.Minute, 5 * time.Minute
	scrape("busy", early, late, always(6.5))
	scrape("10.0.0.2:9100", early, late, always(5))
	scrape("rested", early, late, func(at time.Duration) float64 {
		if at == -time.Minute {
			return 1
		}
		return 9
	})
	scrape("rested-before", early, late, func(at time.Duration) float64 {
		if at < -2*time.Minute {
			return 1
		}
		return 9
	})
	scrape("young", -45*time.Second, late, always(9))
	scrape("ended", early, -8*time.Minute, always(9))
	scrape("elsewhere", early, late, always(9))

	var nodes []*corev1.Node
	for _, name := range []string{"busy", "addressed", "rested", "rested-before", "young", "ended", "unscraped"} {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	nodes[1].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}}
	settings := prometheus.Config{Address: start(t, text+"# EOF\n"), Timeout: 10 * time.Second}
	for metric, want := range map[string]map[string]float64{
		"node_load1":                   {"busy": 6.5, "addressed": 5, "rested": 1, "rested-before": 9},
		"2 * node_load1":               {"busy": 13, "addressed": 10, "rested": 2, "rested-before": 18},
		`node_load1{instance!="busy"}`: {"addressed": 5, "rested": 1, "rested-before": 9},
	} {
		config := nodeload.DefaultConfig()
		config.Metric = metric
		source, err := nodeload.NewSource(process.OS{}, config, settings, "")
		require.NoError(t, err)
		loads, err := source.Loads(t.Context(), nodes, now)
		require.NoError(t, err)
		require.Equal(t, want, loads, metric)
	}
	for metric, says := range map[string]string{"node_load1{": "parse error", "node_load5": "--node-load-metric=node_load5: no series in Prometheus"} {
		config := nodeload.DefaultConfig()
		config.Metric = metric
		source, err := nodeload.NewSource(process.OS{}, config, settings, "")
		require.NoError(t, err)
		loads, err := source.Loads(t.Context(), nodes, now)
		require.ErrorContains(t, err, says)
		require.Empty(t, loads)
		require.False(t, strings.Contains(err.Error(), "\n"), "one line")
	}
}
