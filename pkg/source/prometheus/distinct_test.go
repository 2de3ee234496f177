package prometheus

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

func TestAmbiguityDetector_ReportsDifferingLabels(t *testing.T) {
	c := usage.ContainerKey{Namespace: "data", Pod: "db-0", Container: "db"}
	at := func(from, till time.Duration) []Point { return []Point{{At: start.Add(from)}, {At: start.Add(till)}} }
	always := at(0, time.Hour)
	for _, tc := range []struct {
		name                     string
		first, other             map[string]string
		firstPoints, otherPoints []Point
		want                     string // part of the error, empty for none
	}{
		{name: "runs on two nodes", first: map[string]string{"id": "a", "node": "n1", "instance": "10.0.0.1"}, firstPoints: always,
			other: map[string]string{"id": "b", "node": "n2", "instance": "10.0.0.2"}, otherPoints: always},
		{name: "two clusters", first: map[string]string{"cluster": "west"}, firstPoints: always, other: map[string]string{"cluster": "east"}, otherPoints: always,
			want: `container db of pod data/db-0 has series with cluster="east" and cluster="west": select one, for example with --prometheus-matchers='cluster="west"'`},
		{name: "two clusters at one time", first: map[string]string{"cluster": "west"}, firstPoints: at(0, 0), other: map[string]string{"cluster": "east"}, otherPoints: at(0, 0),
			want: `--prometheus-matchers='cluster="west"'`},
		{name: "a cluster that came later", first: map[string]string{"cluster": "west"}, firstPoints: always,
			other: map[string]string{"cluster": "east"}, otherPoints: at(30*time.Minute, time.Hour), want: `--prometheus-matchers='cluster="west"'`},
		{name: "a replica without label", first: map[string]string{}, firstPoints: always, other: map[string]string{"replica": "b"}, otherPoints: always,
			want: `--prometheus-matchers='replica="b"'`},
		{name: "labels of the node, of one run after the other", first: map[string]string{"zone": "a"}, firstPoints: at(0, 30*time.Minute),
			other: map[string]string{"zone": "b"}, otherPoints: at(28*time.Minute, time.Hour)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NewAmbiguityDetector(hour().Usage, time.Minute)
			require.True(t, d.Add(c, tc.first, tc.firstPoints))
			require.Equal(t, tc.want == "", d.Add(c, tc.other, tc.otherPoints))
			if tc.want == "" {
				require.NoError(t, d.Err())
				return
			}
			require.ErrorContains(t, d.Err(), tc.want)
			require.ErrorContains(t, d.Ambiguous(c), tc.want)
		})
	}
}

func TestAddMatchers_OnlyToSelectors(t *testing.T) {
	for _, tc := range []struct{ name, expression, want string }{
		{"metric", "node_load1", `node_load1{cluster="eu"}`},
		{"selector", `up{job="a{2}", }`, `up{job="a{2}", cluster="eu"}`},
		{"range", "kube_pod_labels[8d]", `kube_pod_labels{cluster="eu"}[8d]`},
		{"empty braces", "up{}", `up{cluster="eu"}`},
		{"expression", "2 * node_load1", "2 * node_load1"},
		{"function", `max(up{job="a"})`, `max(up{job="a"})`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, AddMatchers(tc.expression, `cluster="eu"`))
			require.Equal(t, tc.expression, AddMatchers(tc.expression, " "))
		})
	}
}

func TestLiveReader_ReportsSeriesOfTwoClusters(t *testing.T) {
	answer := func(labels string) string {
		return `{"metric":{"namespace":"ns","pod":"p","container":"c","cluster":"` + labels + `"},"value":[1772438400,"0.5"]}`
	}
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		require.NotContains(t, r.FormValue("query"), " by ", "other labels must be in the answer")
		list := answer("east") + "," + answer("west") + `,{"metric":{"namespace":"ns","pod":"q","container":"c","cluster":"east"},"value":[1772438400,"0.25"]}`
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[`+list+`]}}`)
	}))
	defer server.Close()
	client, err := New(process.OS{}, Config{Address: server.URL, Timeout: 5 * time.Second})
	require.NoError(t, err)
	live := &LiveReader{Client: client, Usage: hour().Usage, Window: 5 * time.Minute}
	pods, left := map[string]int{}, &AmbiguousContainers{}
	live.Ambiguities = left
	err = live.Samples(t.Context(), func(s usage.Sample) { pods[s.Container.Pod]++ })
	require.ErrorContains(t, err, `container c of pod ns/p has series with cluster="east" and cluster="west"`)
	require.Equal(t, map[string]int{"q": 2}, pods)
	left.Each(func(c usage.ContainerKey, why error) {
		require.Equal(t, "p", c.Pod)
		require.ErrorContains(t, why, `cluster="east"`)
		pods[c.Pod]++
	})
	require.Equal(t, 1, pods["p"])
}

func TestReadArchive_SkipsSeriesOfTwoClusters(t *testing.T) {
	f := newFake(t)
	f.container("shop", "api-0", "app")
	for _, cluster := range []string{"east", "west"} {
		for _, metric := range []string{"cpu_total", "memory_bytes"} {
			f.add(metric, always("1"), "namespace", "shop", "pod", "db-0", "container", "app", "cluster", cluster)
		}
	}
	found, problems := f.read(hour())
	require.Equal(t, []string{"shop/api api-0/app"}, seriesNames(found))
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], `has series with cluster="east" and cluster="west"`)
}

// The pods of a Deployment have different names in each cluster.
func TestReadArchive_SkipsWorkloadsOfTwoClusters(t *testing.T) {
	f := newFake(t)
	f.container("shop", "api-0", "app")
	for cluster, pod := range map[string]string{"east": "web-7d9f8b6c5d-x2k4p", "west": "web-5c4b8f7d9-bcdfg"} {
		for _, metric := range []string{"cpu_total", "memory_bytes"} {
			f.add(metric, always("1"), "namespace", "shop", "pod", pod, "container", "app", "cluster", cluster)
		}
	}
	found, problems := f.read(hour())
	require.Equal(t, []string{"shop/api api-0/app"}, seriesNames(found))
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], `shop/web`)
	require.Contains(t, problems[0], `series of several clusters, with cluster="east" and with cluster="west": select one, for example with --prometheus-matchers='cluster="west"'`)
}

// Without honor_labels, Prometheus prefixes the labels of kube-state-metrics.
func TestReadArchive_ReadsExportedLabels(t *testing.T) {
	f := newFake(t)
	f.container("shop", "web-7d9f8b6c5d-x2k4p", "app")
	state := func(metric, value string, labels ...string) {
		f.add(metric, always(value), slices.Concat([]string{"namespace", "monitoring", "pod", "kube-state-metrics-0", "container", "main",
			"exported_namespace", "shop", "exported_pod", "web-7d9f8b6c5d-x2k4p"}, labels)...)
	}
	state("kube_pod_owner", "1", "owner_kind", "StatefulSet", "owner_name", "frontend", "owner_is_controller", "true")
	state("kube_pod_container_resource_requests", "0.25", "exported_container", "app", "resource", "cpu")
	q := hour()
	q.Usage.Matchers = `cluster="eu"`
	found, problems := f.read(q)
	require.Empty(t, problems)
	require.Equal(t, []string{"shop/frontend web-7d9f8b6c5d-x2k4p/app"}, seriesNames(found))
	require.Equal(t, resources.List{}.With(resources.CPU, 250), found[0].Requests)
	for _, selector := range f.selectors {
		require.Contains(t, selector, `cluster="eu"`)
	}
	for _, query := range f.queries {
		require.Contains(t, query.query, `cluster="eu"`)
	}
}

func TestAccess_SendsHeaders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(file, []byte("# tenant\nX-Scope-OrgID: one\n\n"), 0o600))
	a := DefaultAccess()
	fs := flags.New("")
	a.AddFlags(fs)
	require.NoError(t, fs.Parse([]string{"--prometheus-header=X-Team: a: b", "--prometheus-headers-file=" + file, `--prometheus-matchers=cluster="eu"`}))
	require.NoError(t, a.Complete())
	require.NoError(t, a.Validate(true))
	require.Equal(t, `cluster="eu"`, a.Matchers)
	var got []string
	client, _ := serve(t, a.Client(""), func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("X-Scope-OrgID")+" "+r.Header.Get("X-Team"))
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	})
	require.NoError(t, ask(t, client))
	require.NoError(t, os.WriteFile(file, []byte("X-Scope-OrgID: two"), 0o600))
	require.NoError(t, ask(t, client))
	require.Equal(t, []string{"one a: b", "two a: b"}, got)

	a.Headers = []string{"no header"}
	require.ErrorContains(t, a.Validate(false), "--prometheus-header=(hidden): must be")
}
