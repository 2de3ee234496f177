package prometheus

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/kubectl-loadline/backtest"
	"loadline.dev/loadline/pkg/flags"
)

// recordedContainer has constant usage within stretches of five minutes, so that a rate over a
// stretch is exact. It is scraped every minute, half a minute off, so that no sample is between two
// stretches.
type recordedContainer struct {
	pod, name string
	from      time.Time
	stretches int // of five minutes
	seed      int
	request   float64 // in cores, 0: unknown
	waiting   float64 // share of time waiting for CPU, 0: unknown
}

const stretch, scrapes = 5 * time.Minute, 5

// cores returns the CPU usage in a stretch. The fraction avoids rounding edges, because results of
// Prometheus are off by a billionth.
func (r recordedContainer) cores(n int) float64 {
	return float64(50+(n*37+r.seed*91)%700)/1000 + 0.0003
}

// bytes returns the memory usage at a scrape of a stretch. The third scrape is the highest.
func (r recordedContainer) bytes(n, scrape int) int64 {
	return int64(100+(n/12*53+r.seed*17)%400)<<20 + int64(4-(scrape-2)*(scrape-2))*4096
}

func (r recordedContainer) csv(workload string) string {
	var text strings.Builder
	request, waiting := "", ""
	if r.request > 0 {
		request = strconv.FormatFloat(r.request, 'f', -1, 64)
	}
	if r.waiting > 0 {
		waiting = strconv.FormatFloat(r.waiting, 'f', -1, 64)
	}
	for n := range r.stretches {
		at := r.from.Add(time.Duration(n+1) * stretch) // the end of the stretch
		fmt.Fprintf(&text, "ns/%s,%s/%s,%d,%g,%d,%s,%s\n", workload, r.pod, r.name, at.Unix(), r.cores(n), r.bytes(n, 2), request, waiting)
	}
	return text.String()
}

// metrics returns the series of containers, in the form of kubelet and kube-state-metrics.
func metrics(all []recordedContainer) string {
	var text strings.Builder
	series := func(metric, kind, suffix string, of func(r recordedContainer) (labels string, value func(n, scrape int) float64)) {
		fmt.Fprintf(&text, "# TYPE %s %s\n", metric, kind)
		for _, r := range all {
			labels, value := of(r)
			for i := range r.stretches * scrapes {
				if labels == "" {
					break // this container has none
				}
				at := r.from.Add(time.Duration(i)*time.Minute + 30*time.Second)
				fmt.Fprintf(&text, "%s%s{namespace=\"ns\",%s} %s %d\n", metric, suffix, labels, strconv.FormatFloat(value(i/scrapes, i%scrapes), 'f', -1, 64), at.Unix())
			}
		}
	}
	one := func(int, int) float64 { return 1 }
	usage := func(r recordedContainer) string {
		return fmt.Sprintf("pod=%q,container=%q,id=\"/kubepods/%s\"", r.pod, r.name, r.pod)
	}
	series("container_cpu_usage_seconds", "counter", "_total", func(r recordedContainer) (string, func(int, int) float64) {
		total := 1e6 // near 0 a counter would seem to have started
		return usage(r), func(n, _ int) float64 {
			total += r.cores(n) * 60
			return total
		}
	})
	series("container_memory_working_set_bytes", "gauge", "", func(r recordedContainer) (string, func(int, int) float64) {
		return usage(r), func(n, scrape int) float64 { return float64(r.bytes(n, scrape)) }
	})
	series("container_pressure_cpu_waiting_seconds", "counter", "_total", func(r recordedContainer) (string, func(int, int) float64) {
		if r.waiting == 0 {
			return "", one
		}
		total := 1e6
		return usage(r), func(int, int) float64 {
			total += r.waiting * 60
			return total
		}
	})
	series("kube_pod_container_resource_requests", "gauge", "", func(r recordedContainer) (string, func(int, int) float64) {
		if r.request == 0 {
			return "", one
		}
		return fmt.Sprintf("pod=%q,container=%q,resource=\"cpu\",unit=\"core\"", r.pod, r.name), func(int, int) float64 { return r.request }
	})
	owned := func(metric string, labels func(r recordedContainer) string) {
		series(metric, "gauge", "", func(r recordedContainer) (string, func(int, int) float64) { return labels(r), one })
	}
	owned("kube_pod_owner", func(r recordedContainer) string {
		if r.name != "app" {
			return ""
		}
		if set, _, random := strings.Cut(r.pod, "-x2k4p"); random {
			return fmt.Sprintf("pod=%q,owner_kind=\"ReplicaSet\",owner_name=%q", r.pod, set)
		}
		return fmt.Sprintf("pod=%q,owner_kind=\"StatefulSet\",owner_name=\"database\"", r.pod)
	})
	owned("kube_replicaset_owner", func(r recordedContainer) string {
		if r.name != "app" || r.pod != running {
			return ""
		}
		return `replicaset="web-7d9f8b6c5d",owner_kind="Deployment",owner_name="front"`
	})
	text.WriteString("# EOF\n")
	return text.String()
}

func runBacktest(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	c, fs := backtest.Default(), flags.New("backtest")
	c.AddFlags(fs)
	require.NoError(t, fs.Parse(append(args, "--recipe=vpa", "--recipe=loadline", "--recipe=cruisekube")))
	require.Zero(t, backtest.Run(t.Context(), c, fs.Args(), &out, &errs), errs.String())
	require.Empty(t, errs.String())
	return out.String()
}

func TestBacktest_PrometheusMatchesFile(t *testing.T) {
	until := time.Now().UTC().Truncate(stretch).Add(-time.Hour)
	since := until.Add(-60 * time.Hour)
	whole := int(until.Sub(since) / stretch)
	all := []recordedContainer{
		{running, "app", since, whole, 1, 0.4, 0.25},
		{running, "proxy", since, whole, 2, 0, 0},
		{"db-0", "app", since.Add(5 * time.Hour), whole - 200, 3, 1.25, 0},
	}
	file := filepath.Join(t.TempDir(), "same.csv")
	require.NoError(t, os.WriteFile(file, []byte("workload,container,timestamp,cpu_cores,memory_bytes,cpu_request_cores,cpu_waiting_share\n"+
		all[2].csv("database")+all[0].csv("front")+all[1].csv("front")), 0o600))
	address := start(t, metrics(all))
	times := []string{"--since=" + since.Format(time.RFC3339), "--until=" + until.Format(time.RFC3339)}
	want := runBacktest(t, file)
	require.Contains(t, want, "cpu: 3 containers")
	require.Equal(t, want, runBacktest(t, append(times, address)...))
	rows := runBacktest(t, append(times, "-o", "csv", "--baselines=false", "-n", "ns", "--prometheus-matchers", `container!="proxy"`, address)...)
	require.Equal(t, []string{strings.TrimPrefix(address, "http://"), "ns/database", "db-0/app"}, strings.Split(strings.Split(rows, "\n")[1], ",")[:3])
	require.Equal(t, 1+2*2*3, strings.Count(rows, "\n"), "two containers, two kinds, three recipes")
}
