package prometheus

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCluster_UsesCommonLabels(t *testing.T) {
	for _, tc := range []struct {
		name   string
		labels map[string]string
		want   string
	}{
		{name: "none", labels: map[string]string{"namespace": "shop", "pod": "web-1"}},
		{name: "cluster", labels: map[string]string{"cluster": "eu"}, want: `cluster="eu"`},
		{name: "several", labels: map[string]string{"cluster_id": "7", "cluster": "eu"}, want: `cluster="eu", cluster_id="7"`},
		{name: "prefix", labels: map[string]string{"k8s_cluster_name": "eu"}, want: `k8s_cluster_name="eu"`},
		{name: "camel case", labels: map[string]string{"clusterName": "eu"}, want: `clusterName="eu"`},
		{name: "empty", labels: map[string]string{"cluster": ""}},
		{name: "label of a node", labels: map[string]string{"cluster_x_k8s_io_owner_name": "pool-1", "topology_kubernetes_io_zone": "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, Cluster(tc.labels)) })
	}
}

func TestClusterDetector_ResolvesClusterOfPods(t *testing.T) {
	type series struct{ pod, cluster string }
	for _, tc := range []struct {
		name    string
		series  []series
		want    string
		known   bool
		problem string
	}{
		{name: "no series"},
		{name: "no label", series: []series{{pod: "web-1"}, {pod: ""}}, known: true},
		{name: "label in the other cluster only", series: []series{{pod: "web-1"}, {cluster: "us"}}, known: true},
		{name: "label on some series", series: []series{{pod: "web-1"}, {pod: "web-2", cluster: "eu"}}, want: `cluster="eu"`, known: true},
		{name: "one cluster", series: []series{{pod: "web-1", cluster: "eu"}, {cluster: "eu"}}, want: `cluster="eu"`, known: true},
		{name: "other pods in another", series: []series{{pod: "web-1", cluster: "eu"}, {cluster: "us"}}, want: `cluster="eu"`, known: true},
		{name: "one name in both", series: []series{{pod: "db-0", cluster: "eu"}, {pod: "db-0", cluster: "us"}, {pod: "web-1", cluster: "eu"}}, want: `cluster="eu"`, known: true},
		{name: "all names in both", series: []series{{pod: "db-0", cluster: "eu"}, {pod: "db-0", cluster: "us"}}, problem: `with cluster="eu" and with cluster="us"`},
		{name: "names in different ones", series: []series{{pod: "web-1", cluster: "eu"}, {pod: "web-2", cluster: "us"}}, problem: `--prometheus-matchers='cluster="us"'`},
		{name: "no pod in any of two", series: []series{{cluster: "eu"}, {cluster: "us"}}, problem: "several clusters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c ClusterDetector
			for _, s := range tc.series {
				labels := map[string]string{}
				if s.cluster != "" {
					labels["cluster"] = s.cluster
				}
				c.Add(s.pod, labels)
			}
			own, known, err := c.Resolve()
			require.Equal(t, tc.want, own)
			require.Equal(t, tc.known, known)
			if tc.problem == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.problem)
			}
		})
	}
}
